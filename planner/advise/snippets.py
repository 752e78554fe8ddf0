"""The lines of code that a change takes, and what a change of numbers risks.

Names are those of torch 2.13 (torch.distributed.fsdp, torch.utils.checkpoint, torch.optim),
bitsandbytes and torchao.
"""

from __future__ import annotations

from shlex import quote

from ...catalog.names import seller_name
from ...catalog.vocabulary import FrozenPrecision, Precision, Recompute
from ..plan.layout import Layout
from ..plan.plan import Plan

_COMPARE = "compare the loss of the first 1,000 steps with today's"
PRECISION_RISKS: dict[Precision, str] = {
    "fp32": "none for the numbers",
    "tf32": f"products round their factors to 10 bits: {_COMPARE}",
    "fp16-amp": f"gradients may underflow, so the loss is scaled: {_COMPARE}",
    "bf16-amp": f"products round to 7 bits: {_COMPARE}",
    "bf16": f"weights round to 7 bits too, and lose small updates: {_COMPARE}",
    "fp8": f"products round to 2 or 3 bits, and need scales: {_COMPARE}, and evaluate the end",
}
"""What a precision may do to the training. Bits of the mantissa: IEEE 754 binary16 has 10; TF32 10
(NVIDIA A100 whitepaper, 2020); bfloat16 7; FP8 E4M3 3 and E5M2 2 (arXiv:2209.05433)."""
PRECISION_LINES: dict[Precision, tuple[str, ...]] = {
    "fp32": ('torch.set_float32_matmul_precision("highest")',),
    "tf32": (
        'torch.set_float32_matmul_precision("high")',
        "torch.backends.cudnn.allow_tf32 = True",
    ),
    "fp16-amp": (
        'with torch.autocast("cuda", dtype=torch.float16): loss = …',
        'scaler = torch.amp.GradScaler("cuda")',
    ),
    "bf16-amp": ('with torch.autocast("cuda", dtype=torch.bfloat16): loss = …',),
    "bf16": ("model = model.to(torch.bfloat16)",),
    "fp8": ("torchao.float8.convert_to_float8_training(model)",),
}
FROZEN_RISKS: dict[FrozenPrecision, str] = {
    "bf16": "none where the weights were published in bfloat16; others round to 7 bits",
    "nf4": f"the base rounds to 4 bits: {_COMPARE}, and evaluate the end",
}
FROZEN_LINES: dict[FrozenPrecision, tuple[str, ...]] = {
    "bf16": (
        "for p in model.parameters():",
        "    if not p.requires_grad: p.data = p.data.to(torch.bfloat16)",
    ),
    "nf4": (
        '# plain torch, in place of every frozen nn.Linear; .to("cuda") packs its weights:',
        'bitsandbytes.nn.Linear4bit(m, n, compute_dtype=torch.bfloat16, quant_type="nf4")',
        "# transformers, at from_pretrained(…, quantization_config=…):",
        'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",',
        "    bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)",
    ),
}
"""For parameters that are not trained."""
RECOMPUTE_LINES: dict[Recompute, tuple[str, ...]] = {
    "none": ("x = block(x)  # without torch.utils.checkpoint",),
    "selective": (
        "x = checkpoint(block, x, use_reentrant=False, context_fn=keep_products)",
        "# keep_products: create_selective_checkpoint_contexts, which keeps matrix products",
    ),
    "full": ("x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",),
}
"""For every repeated block of the model."""
OPTIMIZER_LINES: dict[str, tuple[str, ...]] = {
    "adamw": ("torch.optim.AdamW(model.parameters(), lr=…)",),
    "adam": ("torch.optim.Adam(model.parameters(), lr=…)",),
    "adamw8bit": ("bitsandbytes.optim.AdamW8bit(model.parameters(), lr=…)",),
    "adafactor": ("torch.optim.Adafactor(model.parameters(), lr=…)",),
    "sgd": ("torch.optim.SGD(model.parameters(), lr=…, momentum=0.9)",),
    "muon": ("torch.optim.Muon(matrices, lr=…)  # and AdamW for all other parameters",),
}
FUSED_LINES: dict[str, str] = {
    "adamw": "torch.optim.AdamW(model.parameters(), lr=…, fused=True)",
    "adam": "torch.optim.Adam(model.parameters(), lr=…, fused=True)",
}
FUSED_RISK = (
    "none for the training: the same update, rounded in another order; parameters must be floating"
    " point numbers on one kind of device"
)
"""torch.optim.AdamW, `fused` (docs of torch 2.13)."""


def sharding_lines(layout: Layout, grad_accum: int) -> tuple[str, ...]:
    """Return the lines that share the state among data-parallel ranks as a layout says.

    Args:
        layout: of the ranks.
        grad_accum: micro-batches a step.
    """
    if layout.zero_stage == 0:
        return ("model = DistributedDataParallel(model)",)
    if layout.zero_stage == 1:
        return (
            "model = DistributedDataParallel(model)",
            "ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)",
        )
    options = ""
    if layout.zero_stage == 2:
        options = ", reshard_after_forward=False"
    elif layout.replicas > 1:
        options = f', mesh=init_device_mesh("cuda", ({layout.replicas}, {layout.shard}))'
    shard = f"fully_shard(block{options})  # every block, then the model"
    if layout.zero_stage == 2 and grad_accum > 1:
        # It would gather anew in every micro-batch, which the prediction does not count.
        return (shard, "model.set_reshard_after_backward(is_last)  # before each backward pass")
    return (shard,)


def options_of(plan: Plan) -> str:
    """Return the options of gpuplan that name a plan's machine and how it is used."""
    offer = plan.offer
    name = seller_name(offer.provider, offer.instance_type) or offer.instance_type
    return (
        f"--provider {offer.provider} --instance {quote(name)}"
        f" --nodes {plan.nodes} --layout {plan.layout} --micro-batch {plan.micro_batch}"
        f" --grad-accum {plan.grad_accum}"
    )
