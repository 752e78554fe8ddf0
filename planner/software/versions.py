"""What software of an earlier date did differently from the kernels and stacks measured today.

The keys are the stack, the date of the software and the architecture of the device. A user's plan
is for today's software; dates matter when past runs are predicted (`gpuplan validate`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...catalog.vocabulary import Offloaded, Precision, Stack
from ..constants import Constants
from ..plan.layout import Layout
from ..plan.setup import Date, ReduceDtype

CHECKED_SOFTWARE = "checked-software"
"""Feature: what the record says of its software was compared with the configuration of the program
that ran, so that its prediction is less doubtful than that of a plan."""
FLASH_PACKAGE = "flash-attention-package"
"""Feature: attention is the flash-attn package's, which a record calls "flash", or cuDNN's through
Transformer Engine under torch, instead of torch's own, which it calls "fused"."""
FLASH_2_PACKAGE = "flash-attention-2"
"""Feature: attention is that of the flash-attn package before its third generation, whatever the
date: recipes that turn cuDNN's off (NVTE_FUSED_ATTN=0) in a container that has no other."""
NATIVE_AUTOCAST: Date = (2022, 1)
"""Mixed precision was Apex O2 (16-bit layers) before torch 1.6 brought torch.autocast (2020-07),
and stayed so in most training scripts until Apex gave its amp up."""

VECTORISED_KERNELS: Date = (2021, 10)
"""torch 1.10: norms, dropout and softmax had come to read four elements at once (recalled)."""

NATIVE_GELU: Date = (2021, 1)
"""torch.nn.functional.gelu came with torch 1.4 (2020-01); published code took it up by the end of
that year (DeepLearningExamples' BERT went back and forth in 2020-04)."""
FOREACH_OPTIMIZERS: Date = (2023, 3)
"""torch 2.0 made its optimizers step all tensors of a list at once."""
SOFTMAX_WITHOUT_INPUT: Date = (2022, 4)
"""torch 1.11, released on 2022-03-10 (pytorch/pytorch#65242)."""
FREED_GRADIENTS: Date = (2023, 3)
"""torch 2.0: `zero_grad` frees gradients, where it wrote zeros into them before (its release notes:
set_to_none is True by default)."""
LEAN_MEGATRON: Date = (2025, 1)
"""Megatron with Transformer Engine and CUDA graphs whatever the recipe, as all use it since."""
TRANSFORMER_ENGINE = "transformer-engine"
"""Feature: layers are Transformer Engine's, in C++, with user buffers for tensor parallelism."""
ENGINE_IN_MEGATRON: Date = (2023, 6)
"""Megatron-LM and NeMo took Transformer Engine's layers (release notes of Megatron-LM 23.05)."""
MEGATRON_CORE: Date = (2023, 2)
"""Megatron-LM runs Megatron Core (since 2023-01-31), whose cross-entropy turns the fp32 copy of the
logits into their softmax in place (core/tensor_parallel/cross_entropy.py, `out=exp_logits`)."""
LOSS_OF_ENGINE: tuple[Date, Date] = (2025, 4), (2026, 7)
"""Since when recipes of NeMo and Megatron-Bridge take Transformer Engine's cross-entropy
(cross_entropy_fusion_impl="te"), and until when that writes the gradient into the logits: since
2026-07-09 it is a tensor of its own, in fp32 (pytorch/triton/cross_entropy.py)."""
WEIGHTED_INSIDE_EXPERTS: Date = (2025, 5)
"""Megatron-LM, merged 2025-04-09 ("Memory efficient token permutation") and counted from the month
after: the router's weights multiply inside the activation function of experts."""
FUSED_ACCUMULATION: Date = (2022, 5)
"""Megatron-LM's gradient_accumulation_fusion, on by default since: bf16 gradients are added into
the fp32 sum by the product that makes them."""
BF16_REDUCTION = "reduce-bf16"
"""Feature: FSDP's MixedPrecisionPolicy(reduce_dtype=torch.bfloat16); Megatron's gradients are then
kept in bf16 as well (grad_reduce_in_fp32=False)."""
_IN_BF16 = frozenset({BF16_REDUCTION})
FP32_REDUCTION = "reduce-fp32"
"""Feature: Megatron's gradients are kept and reduced in fp32 beside bf16 and 8-bit layers, its own
default (megatron/training/arguments.py, accumulate_allreduce_grads_in_fp32), where a recipe of
NVIDIA's is assumed otherwise (`BF16_GRADIENTS`, `EIGHT_BIT_PARAMETERS`)."""
BF16_GRADIENTS: Date = (2024, 1)
"""NeMo 24.01 and later, and Megatron-Bridge: grad_reduce_in_fp32=False in the performance recipes
(NVIDIA-NeMo/Megatron-Bridge, scripts/performance; NeMo, collections/llm/recipes)."""
FP8_PARAMETERS = "fp8-parameters"
"""Feature: Megatron's distributed optimizer gathers updated parameters in the 8 bits that layers
multiply (fp8_param_gather), where a tensor has one scale: those of blocks follow its direction, so
that 16 bits are gathered and cast twice (reuse_grad_buf_for_mxfp8_param_ag)."""
EIGHT_BIT_PARAMETERS: Date = (2024, 4)
"""NVIDIA's recipes set it since: FP8_PARAMS of MLPerf Training v4.0 (in NeMo 24.04; no such key in
v3.1), `fp8_param_gather` of Megatron-Bridge (training/mixed_precision.py; not for blockwise)."""
BUCKET_COPIES, BUCKET_VIEWS = "bucket-copies", "bucket-views"
"""Features: the buckets that DDP reduces lie beside the gradients (its default), or gradients are
views of them (gradient_as_bucket_view=True, as gpuplan's runner has it)."""
GATHERED_ONCE = "gathered-once"
"""Feature: FSDP keeps from one micro-batch to the next what ZeRO-2 gathered
(set_reshard_after_backward(False), as gpuplan's runner has it)."""
FUSED_OPTIMIZER = "fused-optimizer"
"""Feature: one kernel steps many parameters (torch's fused=True, apex)."""
FOREACH_OPTIMIZER = "foreach-optimizer"
"""Feature: torch's default beside compile, where `FUSED_OPTIMIZER` is assumed otherwise."""
BLOCKING = "blocking-collectives"
"""Feature: nothing runs beside the collectives of the data dimension."""
DEEPSPEED = "deepspeed"
"""Feature: ZeRO is DeepSpeed's engine, not FSDP beside torch's layers nor Megatron's own beside its
layers. Unless `overlap_comm` is set its ZeRO-1 and ZeRO-2 beside torch's reduce gradients beside
nothing, and all of them on every rank (runtime/zero/stage_1_and_2.py,
`use_multi_rank_bucket_allreduce`: one all-reduce a bucket)."""
ASYNC_TENSOR_PARALLEL = "async-tensor-parallel"
"""Feature: torch.compile cuts products up to run beside the collectives of tensor ranks."""
CLIPPED_BY_TENSOR = "clipped-by-tensor"
"""Feature: a loop in Python clips and steps every tensor by itself (BertAdam)."""
CLIPPED_LAUNCHES = 18
"""Kernels of such a turn: 12 of BertAdam's, 6 of `clip_grad_norm_`."""
CLIPPING_WITHOUT_WAIT: Date = (2021, 10)
"""torch 1.10: `clip_grad_norm_` no longer asks the device whether a norm is too long, for which the
host waited in every call (pytorch/pytorch#60691, #61042)."""
LARGE_BUCKETS = "large-buckets"
"""Feature: gradients are reduced in a few large buckets beside torch's layers (apex, NeMo)."""
SHARDED_BY_TENSOR = "zero-by-tensor"
"""Feature: ZeRO-1 gives whole tensors to ranks, and each broadcasts what it updated: InternEvo,
fairscale's OSS, torch's ZeroRedundancyOptimizer."""
XLA_OVERLAPS_ON_GPUS: Date = (2024, 3)
"""XLA for GPUs hides collectives by default: its latency-hiding scheduler and pipelined collectives
were flags of 2023 (the same cells of JAX-Toolbox's tables take 5 s less at 175B since)."""
NVFP4, INT8 = "nvfp4", "int8"
"""Features: linear layers multiply in 4 bits beside a run in fp8, or in int8 beside one in bf16."""
MXFP8 = "mxfp8"
"""Feature: 8-bit numbers with a scale for each block of 32. With their casts such products reach
.50, .47 and .46 of the peak forward and backward where those of one scale a tensor reach .49, .46
and .44 (Transformer Engine's benchmarks on B300, as gathered on 2026-11-22): no more apart than
either is from the curves, so that both are predicted alike."""
FP8_ROWWISE = "fp8-rowwise"
"""Feature: torchao's scales by row, with which FSDP gathers 16 bits."""
_NARROW_PRODUCTS = {
    # Transformer Engine on B300, casts included: 2.7-3.3 PFLOP/s in NVFP4, 2.0-2.4 in fp8 recipes
    # (its benchmarks, as gathered on 2026-11-22).
    NVFP4: 0.74,
    # Google's AQT on TPU v5e: steps 1.2 to 1.4 times as fast (its announcement of 2023-11,
    # recalled), of which products are four fifths.
    INT8: 0.71,
}
FP8_ACTIVATION = "fp8-activation-inputs"
"""Feature: activation functions keep what they are given in 8 bits (Megatron's
activation_func_fp8_input_store; FP8_ACT of MLPerf's recipes)."""
FP8_ATTENTION = "fp8-attention"
"""Feature: attention multiplies in 8 bits too (Transformer Engine's fp8_dot_product_attention)."""
SIXTEEN_BIT_LAYERS = "sixteen-bit-layers"
"""Feature: layers hold 16-bit weights and run in 16 bits, norms included, with no autocast around
them, and the optimizer keeps fp32 masters (NeMo's precision 16, apex O2)."""
CAST_OPERATIONS = "autocast"
"""Feature: operations are cast one by one, by torch's autocast or Apex's O1, at a time when most
scripts held 16-bit layers (`NATIVE_AUTOCAST`)."""
BLOCKING_TENSOR = "blocking-tensor-parallel"
"""Feature: nothing runs beside the collectives of the tensor dimension (Megatron's recipes without
tp_comm_overlap)."""
KEPT_PRODUCTS = "kept-products"
"""Feature: an XLA policy of recompute keeps all products of weights: MaxText's `minimal_flash`,
Pax' `SAVE_DOT_WITH_NO_BATCH_DIM`; NeuronX recomputes the attention core alone."""
REDUCTIONS_APART = "reductions-apart"
"""Feature: XLA reads a softmax's or norm's operands once for each of its reductions, as on GPUs
where neither Triton (`xla_gpu_enable_triton_softmax_fusion`) nor Transformer Engine merges them."""
SCATTERED_SENDS = "scattered-sends"
"""Feature: each tensor rank sends a part of the activation to the next pipeline stage, whose ranks
gather the parts."""
SCATTER_IN_MEGATRON: tuple[Date, Date] = (2021, 2), MEGATRON_CORE
"""Since when, and until when, Megatron-LM did so unless told otherwise:
scatter_gather_tensors_in_pipeline became its default on 2021-02-16; pipelines of Megatron Core,
which took over on 2023-01-31 (commit 39b83c7953), do not read it. With sequence parallelism, of
2022-05, a
rank holds a part of the activation to begin with."""
DISTRIBUTED_OPTIMIZER: Date = (2022, 9)
"""Megatron-LM's --use-distributed-optimizer, in the 2022-09 releases."""
FUSED_EXPERTS: Date = (2026, 6)
"""Megatron's recipes in MXFP8 on Blackwell: one CUDA graph of the whole step, grouped products with
activation and casts in their epilogue (CuTe DSL), tokens permuted by the dispatch itself (HybridEP)
and attention in fp8 (NVIDIA-NeMo/Megatron-Bridge, pull requests 3983, 4211, 4226, of 2026-06).
Those for Hopper have none of it: their cells took as long in 2026-04 as in 2026-02."""
LAYOUT_OPTIMIZATION: Date = (2023, 10)
"""torch 2.1: Inductor's `layout_optimization`, on by default, runs convolutions channels-last."""
CUDNN_9: Date = (2024, 7)
"""torch 2.4: its wheels bring cuDNN 9.1, and 8 before. Whether 9 has kernels for grouped
convolutions in channels-last order is not known: nobody published them with it."""
COALESCED_ZERO_3: Date = (2022, 1)
"""DeepSpeed gathered parameter by parameter before, over one rail at a time, whatever the model and
the fabric (Narayanan et al. 2021, table 2: the same step on 768 and on 1,536 accelerators)."""


def attention_date(date: Date | None, features: frozenset[str]) -> Date | None:
    """Return the date of the attention kernels of software of a date."""
    if FLASH_2_PACKAGE not in features:
        return date
    return _OF_FLASH_2 if date is None else min(date, _OF_FLASH_2)


def calls_torch_attention(stack: Stack, features: frozenset[str]) -> bool:
    """Return whether attention is torch's scaled_dot_product_attention.

    A model file describes with its masks what other stacks and packages know as a window.
    """
    of_package = {FLASH_PACKAGE, FLASH_2_PACKAGE, TRANSFORMER_ENGINE} & features
    return stack.startswith("torch") and not of_package


_OF_FLASH_2: Date = (2024, 1)
"""A month in which the package was of its second generation."""


def keeps_softmax_inputs(stack: Stack, date: Date | None) -> bool:
    """Return whether torch's softmax saves its input for a backward pass that does not read it."""
    return stack == "torch-eager" and date is not None and date < SOFTMAX_WITHOUT_INPUT


def scripts_gelu(stack: Stack, date: Date | None) -> bool:
    """Return whether transformers' GELU was a TorchScript function."""
    return stack == "torch-eager" and date is not None and date < NATIVE_GELU


def is_python_bound(stack: Stack, date: Date | None, features: frozenset[str]) -> bool:
    """Return whether Python launches Megatron's kernels one by one.

    It did before Transformer Engine's layers, whose C++ modules launch several kernels a call.
    """
    return stack == "megatron" and not is_lean(date, features)


def narrow_products(features: frozenset[str]) -> float:
    """Return the time of linear layers' products over that in the precision's own format."""
    return min((_NARROW_PRODUCTS.get(name, 1.0) for name in features), default=1.0)


def reduction_features(
    reduce_dtype: ReduceDtype | None,
    stack: Stack,
    precision: Precision,
    *,
    autocast: bool,
    offload: Collection[Offloaded] = (),
) -> frozenset[str]:
    """Return the feature of plans whose gradients FSDP reduces in bf16.

    Args:
        reduce_dtype: what is asked for, or said by the file.
        stack: FSDP is torch's.
        precision: it has a policy for mixed precision alone, of bf16.
        autocast: whether layers are cast by autocast, as under all layouts but FSDP's.
        offload: engines that keep the optimizer on the host reduce in a way of their own.
    """
    of_fsdp = stack.startswith("torch") and not autocast
    if reduce_dtype != "bf16" or not of_fsdp or precision not in ("bf16-amp", "fp8"):
        return frozenset()
    return frozenset() if {"optimizer", "parameters"} & set(offload) else _IN_BF16


def is_lean(date: Date | None, features: frozenset[str]) -> bool:
    """Return whether Megatron of that date runs Transformer Engine's layers."""
    return date is None or date >= LEAN_MEGATRON or TRANSFORMER_ENGINE in features


def picks_layouts(stack: Stack, date: Date | None) -> bool:
    """Return whether a compiler chooses the memory order of convolutions, whatever the file's."""
    if stack == "xla":
        return True
    return stack == "torch-compile" and (date is None or date >= LAYOUT_OPTIMIZATION)


def lacks_grouped_kernels(stack: Stack, date: Date | None) -> bool:
    """Return whether grouped convolutions in channels-last order fall back to general kernels.

    They do under cuDNN 7.6 to 8.9, where the file chooses the memory order.
    """
    of_cudnn_8 = stack.startswith("torch") and date is not None and date < CUDNN_9
    return of_cudnn_8 and not picks_layouts(stack, date)


def launches_serially(stack: Stack, date: Date | None, layout: Layout) -> bool:
    """Return whether host time adds to the device's, as under DeepSpeed's engine of 2021-22.

    Published steps of that engine with tensor parallelism show host time that nothing hides, a
    fixed cost per layer and micro-batch; without tensor parallelism, and in 2023, they do not.
    """
    split = layout.zero_stage in (1, 2) and layout.tensor > 1
    return split and is_megatron_deepspeed(stack, date, ())


def is_megatron_deepspeed(stack: Stack, date: Date | None, features: Collection[str]) -> bool:
    """Return whether ZeRO beside Megatron's layers is DeepSpeed's.

    Megatron had no sharded optimizer of its own before `DISTRIBUTED_OPTIMIZER`.
    """
    before = date is not None and date < DISTRIBUTED_OPTIMIZER
    return stack == "megatron" and (before or DEEPSPEED in features)


def sent_parts(stack: Stack, date: Date | None, features: frozenset[str], layout: Layout) -> int:
    """Return among how many tensor ranks a stage scatters the activation that it sends on.

    One: every rank sends all that it holds. DeepSpeed's engine of 2021-22 scatters too
    (`is_pipe_partitioned` of its runtime/pipe/engine.py), but sends and receives in turn, waits for
    the sizes that it sends ahead and copies what it received: its steps show no gain
    (docs/accuracy.md), and whole activations stand for all of that.
    """
    since, until = SCATTER_IN_MEGATRON
    of_date = date is not None and since <= date < until
    scatters = stack == "megatron" and (of_date or SCATTERED_SENDS in features)
    if layout.sequence_parallel or launches_serially(stack, date, layout):
        return 1
    return layout.tensor if scatters else 1


def optimizer_traffic(
    stack: Stack,
    date: Date | None,
    constants: Constants,
    *,
    autocast: bool,
    sixteen_bit: bool,
    features: frozenset[str] = frozenset(),
) -> float:
    """Return the bytes an optimizer step moves relative to torch's foreach implementation.

    One fused kernel reads gradient, parameter and moments and writes the last three: a third of
    what foreach moves, whose every term is a pass of its own. The loops over tensors before it also
    wrote temporaries, and clipped gradients in passes of their own.
    """
    fused = FUSED_OPTIMIZER in features or stack in ("megatron", "xla")
    fused = fused or (sixteen_bit and not autocast and date is not None and date < NATIVE_AUTOCAST)
    if fused:
        return constants["optimizer_traffic.fused"]
    return (
        constants["optimizer_traffic.looped"]
        if date is not None and date < FOREACH_OPTIMIZERS
        else 1.0
    )


@dataclass(frozen=True)
class OptimizerLoop:
    """What a loop over tensors takes of the host, beside the kernels of the optimizer."""

    tensor_s: float = 0.0
    """For each tensor."""
    waits: bool = False
    """Whether the host waits for the device in every turn, so that both add up."""


def steps_by_tensor(stack: Stack, date: Date | None) -> bool:
    """Return whether torch's optimizers step one tensor after the other."""
    return stack.startswith("torch") and date is not None and date < FOREACH_OPTIMIZERS


def optimizer_loop(
    date: Date | None, features: frozenset[str], constants: Constants
) -> OptimizerLoop:
    """Return what the optimizer's loop takes, where it clips each tensor by itself."""
    if CLIPPED_BY_TENSOR not in features:
        return OptimizerLoop()
    return OptimizerLoop(
        tensor_s=CLIPPED_LAUNCHES * constants["launch_s.torch-eager"],
        waits=date is not None and date < CLIPPING_WITHOUT_WAIT,
    )


def tensor_exposure(
    stack: Stack, date: Date | None, features: frozenset[str], constants: Constants
) -> float:
    """Return the share of tensor-parallel collectives that lengthens the step.

    They stand between dependent kernels; only where products are cut up to run beside them (torch's
    async tensor parallelism, the user buffers of Megatron's recipes) is part of them hidden.
    """
    modern = stack == "megatron" and is_lean(date, features) and BLOCKING_TENSOR not in features
    overlapped = modern or ASYNC_TENSOR_PARALLEL in features or stack == "xla"
    return constants["tensor_exposure.overlapped" if overlapped else "tensor_exposure"]


def fuses_experts(architecture: str, stack: Stack, date: Date | None, precision: Precision) -> bool:
    """Return whether grouped products do what is left of `routing_passes` themselves."""
    of_date = date is None or date >= FUSED_EXPERTS
    of_device = architecture.startswith("Blackwell") and precision == "fp8"
    return stack == "megatron" and of_date and of_device
