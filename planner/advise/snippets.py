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
from ..plan.setup import Setup
from ..software.exchanges import held_between

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
CAST_RISK = f"norms, softmax and losses run in 16 bits, which autocast leaves in fp32: {_COMPARE}"
"""Of FSDP and ZeRO-2, whose layers compute in one dtype as a whole."""
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
RECOMPUTE_LINES: dict[Recompute, tuple[str, ...]] = {
    "none": ("x = block(x)  # without torch.utils.checkpoint",),
    "selective": (
        "x = checkpoint(block, x, use_reentrant=False, context_fn=keep_products)",
        "# keep_products: create_selective_checkpoint_contexts, which keeps matrix products",
    ),
    "full": ("x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",),
}
"""For every repeated block of the model."""
OPTIMIZER_CLASSES: dict[str, str] = {
    "adamw": "torch.optim.AdamW",
    "adam": "torch.optim.Adam",
    "adamw8bit": "bitsandbytes.optim.AdamW8bit",
    "adafactor": "torch.optim.Adafactor",
    "sgd": "torch.optim.SGD",
}
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


def sharding_lines(setup: Setup, optimizer: str) -> tuple[str, ...]:
    """Return the lines that share the state among data-parallel ranks as a setup says.

    Args:
        setup: with the layout of the ranks.
        optimizer: canonical name of what steps the parameters.
    """
    layout = setup.layout
    if layout.zero_stage <= 1:
        lines = ["model = DistributedDataParallel(model)"]
        if layout.zero_stage == 1:
            name = OPTIMIZER_CLASSES.get(optimizer, "…")
            lines.append(
                f"ZeroRedundancyOptimizer(model.parameters(), optimizer_class={name}, lr=…)"
                "  # and what else its constructor is given today"
            )
        return (*lines, *accumulation_lines(layout, setup.grad_accum))
    options = ""
    if layout.zero_stage == 2:
        options = ", reshard_after_forward=False"
    elif layout.replicas > 1:
        options = f', mesh=init_device_mesh("cuda", ({layout.replicas}, {layout.shard}))'
    policy = sharded_precision_lines(setup.precision)
    if policy:
        options = f", mp_policy=policy{options}"
    shard = f"fully_shard(block{options})  # every block, then the model"
    return (*policy, shard, *accumulation_lines(layout, setup.grad_accum))


def accumulation_lines(layout: Layout, grad_accum: int) -> tuple[str, ...]:
    """Return the lines by which ranks exchange as rarely as is predicted, of several micro-batches.

    Args:
        layout: of the ranks.
        grad_accum: micro-batches a step.
    """
    return tuple(
        "with model.no_sync(): loss.backward()  # every backward pass of a step but the last"
        if held == "no_sync"
        else f"model.{held}(is_last)  # before each backward pass of a step"
        for held in held_between(layout, grad_accum)
    )


def is_sharded(layout: Layout) -> bool:
    """Return whether FSDP casts whole layers, in place of autocast."""
    return layout.zero_stage >= 2 and layout.shard > 1


def precision_lines(precision: Precision, layout: Layout) -> tuple[str, ...]:
    """Return the lines that a precision takes under a layout."""
    sharded = sharded_precision_lines(precision) if is_sharded(layout) else ()
    if not sharded:
        return PRECISION_LINES[precision]
    scaler = PRECISION_LINES[precision][1:]
    return (*sharded, "fully_shard(block, mp_policy=policy)  # and as today", *scaler)


def frozen_lines(frozen: FrozenPrecision, precision: Precision) -> tuple[str, ...]:
    """Return the lines that keep parameters which are not trained in fewer bits.

    Args:
        frozen: how they are kept.
        precision: of the autocast around them, in whose dtype a 4-bit base is multiplied.
    """
    if frozen == "bf16":
        return (
            "for p in model.parameters():",
            "    if not p.requires_grad: p.data = p.data.to(torch.bfloat16)",
        )
    dtype = "torch.float16" if precision == "fp16-amp" else "torch.bfloat16"
    return (
        '# plain torch, in place of every frozen nn.Linear; .to("cuda") packs its weights:',
        f'bitsandbytes.nn.Linear4bit(m, n, compute_dtype={dtype}, quant_type="nf4")',
        "# transformers, at from_pretrained(…, quantization_config=…):",
        'BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",',
        f"    bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype={dtype})",
    )


def sharded_precision_lines(precision: Precision) -> tuple[str, ...]:
    """Return the line that makes FSDP compute in 16 bits; none where it does not by itself."""
    dtype = {"bf16-amp": "bfloat16", "fp16-amp": "float16"}.get(precision)
    if dtype is None:
        return ()
    return (
        f"policy = MixedPrecisionPolicy(param_dtype=torch.{dtype}, reduce_dtype=torch.float32)"
        "  # without torch.autocast",
    )


def options_of(plan: Plan) -> str:
    """Return the options of gpuplan that name a plan's machine and how it is used."""
    offer = plan.offer
    name = seller_name(offer.provider, offer.instance_type) or offer.instance_type
    return (
        f"--provider {offer.provider} --instance {quote(name)}"
        f" --nodes {plan.nodes} --layout {plan.layout} --micro-batch {plan.micro_batch}"
        f" --grad-accum {plan.grad_accum}"
    )
