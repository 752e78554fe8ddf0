"""What steps of our own on one GPU showed, and what it changed: prose of docs/accuracy.md."""

OWN_STEPS = """\
## What our own steps on one GPU showed

46 steps of 11 models on one H100 ([evidence](evidence.md)) were 20.0 % off on 2026-11-28, 63 %
inside the interval. They are in no number of this page. What differs between two precisions or two
sizes of one model there has a cause of its own; five were built in, each judged by the published
runs too (constants otherwise as they were, in sample). They are 14.3 % off now, 87 % inside:

- **State in 16 bits moves half as much.** A Profile of several numerics stated the optimizer's
  bytes of the first, with fp32 state, for all. Expected: decoders from a billion parameters wholly
  in bf16 a tenth to a sixth faster, no others. 1B from 22 to 11 % too slow, 3B from 31 to 9, as
  with autocast; Automodel's gpt-oss-120B from -4.4 to -5.0 %, nothing else by more than 0.4.
- **Few tiles of great depth** (the gradient of a weight of 256 x 256 over 234,496 nodes) leave most
  multiprocessors idle unless the depth is cut into slices, as cuBLAS does ([curves](curves.md)).
  Expected: the GNN in fp32 three times faster in those products, hardly anything else. From 204 to
  51 % too slow; BERT in fp32 on an MI325X up to 5 % faster (milabench from 6.8 to 6.7 %). A first
  look saw the same in all products of less than a wave, since it took width for depth; cut
  everywhere from 4,096 on, BERT in fp32 came right on Hopper (+15 to 0 %) and went wrong on the
  L40S (-13 to -24 %). Taken out.
- **A slow host.** The small U-Net takes 89 ms under autocast for 62 in TF32. Nothing is missing on
  the device: 1,453 launches, most of them casts, at 50 to 60 us, which the same machine takes for
  DLRM, BERT under recompute and others that wait for it, where 10 are fitted to published runs. The
  centre stays with those; how much longer the step of torch takes with a host five times as slow is
  a doubt (`doubt.slow_host`). Expected: wider intervals of small models and of recompute alone. Its
  weight is fitted to published runs, .49 for a prior of .40, which these steps set; 80 % of them
  are inside (67 with the two above alone), timm, lambda and milabench as before, and of
  qwen-finetune, which nothing is fitted to and whose steps stand on a floor of its trainer, 55 %
  for 9.

- **Odd widths.** GPT-2 124M lacked 14 ms of 81 in 16 bits and none in 32, GPT-2 774M with half the
  tokens none: products of its vocabulary, 50,257, load element by element, at a rate that newer
  tensor cores do not raise ([curves](curves.md)). Expected: GPT-2 in eager torch a sixth slower on
  H100, a tenth on A100, nothing elsewhere, for what compiles, Megatron and XLA pad. GPT-2 124M went
  from 13.1 to 4.1 % off (that of 350M and 774M in 16 bits from 1 and 0 to 8 and 9 % too slow); no
  published run of eager torch has an odd vocabulary, so no group changes by more than 0.1 %.

- **Few tokens of narrow heads.** FlashAttention-2's lag on Hopper was one factor whatever the
  sequence; kernel tables show that with heads 64 wide it grows with it (`NARROW_TOKENS` in
  planner/software/kernel_levels.py). Expected: on Hopper and Blackwell under torch before 2.13
  ViT-L a twentieth faster, GPT-2 and BERT 2 to 4 %, heads of 128 not. ViT-L went from 17 to 11 %
  too slow, GPT-2 350M from 9 to 5, all from 15.0 to 14.3 % (median 10.7 to 9.1). In sample Stable
  Diffusion goes from 8.8 to 8.5 %, NeMo-Automodel's gpt-oss from 12.8 to 12.8, Pax from 15.1 to
  15.2 and milabench from 7.5 to 7.6: its BERT on H100 is 8 % too fast for 4, as is ours (4 for 0).
  Both drop attention weights inside the fused kernel, which is not counted; no table shows what it
  takes, and nothing else here does so.

Their memory was 1.3 % off as allocated, 3.3 as reserved and 2.8 for the whole device, and is 0.5,
1.7 and 1.9 % now. Nothing was fitted:

- **Workspaces lie in the pool.** Since torch 2.0 each thread that multiplies takes a workspace
  from the allocator, 32 MiB on Hopper, and keeps it: one in the forward pass, one in autograd's
  thread (aten/src/ATen/cuda/CublasHandlePool.cpp). They were counted once, beside the pool.
  Expected: 64 MiB more allocated on Hopper, and more reserved where the second is cut out of a
  large block that is then never whole again. The median of what is allocated went from 0.5 to 0.1
  %; of what is reserved GPT-2 in bf16 from -18 to -1 %, the LSTM from -14 to +1, the GNN in bf16
  from -11 to -7.
- **Attention over transposed tensors.** Every fused kernel wants the elements of a head side by
  side (`check_last_dim_stride_equals_1_dense` in sdp_utils.cpp); the U-Net's are pixels, its
  channels first, so that all scores are written. The 0.5 GiB that it lacked are not cuDNN's
  workspaces: they were there when the forward pass ended. Allocated from -9 and -10 to -1 and -2
  %; a note says so of such models now. No published model has it.
- **Images are enlarged in fp32** under autocast (`upsample_*` in autocast_mode.h), traced in 16
  bits before: reserved by the U-Net from -4.6 to -4.0 %, its step half a percent longer.
- **Built in fp32.** Those wholly in bf16 were cast on the device, and the pool keeps what fp32
  took: LoRA from -13 to 0 % reserved, the 3B decoder from +3 to -2. It is a feature of these
  records.

The addresses of segments in falling instead of rising order, and six steps replayed instead of
two, change nothing but the last percent of one or two. BERT with all recomputed and DLRM in bf16
stay 11 and 14 % too high: one block more is broken up than on the device.

That GPT-2 350M and 774M are too slow where 124M is right is no matter of their odd products: in
fp32 and TF32, where those are not slow, 774M and BERT-large are 6 to 8 % too slow too, decoders of
an even vocabulary 8 to 11.

Looked at and left: the LSTM is a third too fast (1,500 wide, no multiple of 8, which cuDNN's
tensor-core kernels of RNNs ask for; no other source has one), the 3-D U-Net in bf16 22 % too fast
and in fp16 9; the GNN in bf16 29 % too slow with the 3.4 ms once a step that loops of published
runs take, and 16 % too fast without them, as these steps on a batch that stays are.
"""
