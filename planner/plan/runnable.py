"""Which plans the runner executes; the planner and the runner ask the same function.

Standard library only, because the runner carries this file to the instances.
"""

from __future__ import annotations

from collections.abc import Collection

from ...catalog.vocabulary import TensorPlan
from .layout import Layout

RUN_PRECISIONS = ("fp32", "tf32", "fp16-amp", "bf16-amp", "bf16")
RUN_FROZEN_PRECISIONS = ("bf16",)
RUN_STACKS = ("torch-eager", "torch-compile")
TiedNames = tuple[str, str]
"""Two names of one weight."""


def why_not_runnable(
    layout: Layout,
    *,
    precision: str | None,
    stack: str,
    grad_accum: int,
    recompute: str,
    offloaded: Collection[str],
    tensor_plan: TensorPlan,
    blocks: int,
    tied_modules: TiedNames | None,
    tied_blocks: TiedNames | None,
    port_to: str | None = None,
    frozen_precision: str | None = None,
    sparse_parameters: int = 0,
) -> str | None:
    """Return why the runner cannot execute a plan, as one sentence; None when it can.

    Args:
        layout: Degrees of every parallelism.
        precision: The plan's; None as the file asks.
        stack: Software the plan was predicted for.
        grad_accum: Micro-batches of a step.
        recompute: none, selective or full.
        offloaded: What is kept in host memory.
        tensor_plan: What the model says of tensor parallelism.
        blocks: Of the longest run of repeated blocks, which stages are made of.
        tied_modules: Two names of one weight that tensor parallelism would make two.
        tied_blocks: Two names of one weight that two blocks, or a block and the rest, share.
        port_to: What torch code must be ported to before the accelerator runs it, such as XLA.
        frozen_precision: How frozen parameters are kept; None as the precision says.
        sparse_parameters: How many have sparse gradients.
    """
    if port_to is not None or stack == "xla":
        return (
            f"It needs a port to {port_to or 'XLA'}: the plan is written as a command, and not run."
        )
    if stack not in RUN_STACKS:
        return f"It was predicted for {stack}; the runner is torch's own. Run it with --command."
    if precision is not None and precision not in RUN_PRECISIONS:
        return f"The runner has no {precision}; it runs {', '.join(RUN_PRECISIONS)}."
    if frozen_precision not in (None, *RUN_FROZEN_PRECISIONS):
        return (
            f"The runner does not quantise, and the plan keeps the frozen base in"
            f" {frozen_precision}. Load it in 4 bits with bitsandbytes in a script of your own"
            " (transformers: BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4',"
            " bnb_4bit_use_double_quant=True)), and run that with --command."
        )
    if offloaded:
        return f"The runner keeps nothing in host memory; the plan offloads {', '.join(offloaded)}."
    if sparse_parameters and layout.accelerators > 1:
        return (
            "Sparse gradients (sparse=True of an embedding) are not reduced between accelerators by"
            " NCCL, nor by FSDP: leave sparse=True out for several."
        )
    return (
        _tensor_reason(layout, tensor_plan)
        or _tied_reason(layout, tied_modules, tied_blocks)
        or _pipeline_reason(layout, grad_accum=grad_accum, blocks=blocks)
        or _other_reason(layout)
        or _recompute_reason(recompute, blocks)
    )


def _tensor_reason(layout: Layout, tensor_plan: TensorPlan) -> str | None:
    if layout.tensor > 1 and tensor_plan == "none":
        return (
            "The model does not say how its layers are split for tensor parallelism: Hugging Face"
            " models do by a tp_plan, other files by tensor_parallel_plan()."
        )
    if layout.sequence_parallel and tensor_plan != "sequence":
        return (
            "The model does not say how its norms are split for sequence parallelism:"
            " tensor_parallel_plan() names none as 'sequence'."
        )
    return None


def _tied_reason(layout: Layout, modules: TiedNames | None, blocks: TiedNames | None) -> str | None:
    if layout.tensor > 1 and modules is not None:
        return (
            f"{modules[0]} and {modules[1]} are one weight (tied), which the model's own plan"
            " splits in two ways, so that two weights were trained apart: another model."
            " 'embedding' and 'colwise_gather_output' split both alike."
        )
    if layout.pipeline > 1 and blocks is not None:
        return (
            f"{blocks[0]} and {blocks[1]} are one weight (tied), and pipeline stages would each"
            " train their own copy of it: another model."
        )
    fully_shards = layout.zero_stage > 0 or layout.tensor > 1
    if layout.data > 1 and fully_shards and blocks is not None:
        return (
            f"{blocks[0]} and {blocks[1]} are one weight (tied), and FSDP, which shards block by"
            " block (under ZeRO and beside tensor parallelism too), takes each weight into one"
            " block alone. Data parallelism (dp) trains it; so does one block that forward() runs"
            " several times."
        )
    return None


def _pipeline_reason(layout: Layout, *, grad_accum: int, blocks: int) -> str | None:
    stages = layout.pipeline * layout.virtual_stages
    if layout.pipeline == 1:
        return "Virtual stages need pipeline stages." if layout.virtual_stages > 1 else None
    if blocks < stages:
        return f"The model repeats {blocks} blocks in a sequence; {stages} stages need as many."
    if grad_accum < layout.pipeline:
        return (
            f"{grad_accum} micro-batches do not fill {layout.pipeline} pipeline stages; give"
            f" {layout.pipeline} gradient-accumulation steps or more."
        )
    if layout.virtual_stages > 1 and grad_accum % layout.pipeline:
        return (
            f"Interleaved stages take micro-batches in groups of {layout.pipeline}, and"
            f" {grad_accum} gradient-accumulation steps are not a multiple of it."
        )
    return None


def _other_reason(layout: Layout) -> str | None:
    if layout.context > 1:
        return "Context parallelism is predicted, not run."
    if layout.expert > 1:
        return "Expert parallelism is predicted, not run."
    if layout.zero_stage in (1, 2) and layout.pipeline > 1:
        return f"ZeRO-{layout.zero_stage} is not run together with pipeline stages; FSDP is."
    if layout.data % layout.shard:
        return f"The state is shared by {layout.shard} ranks, which {layout.data} do not divide by."
    return None


def _recompute_reason(recompute: str, blocks: int) -> str | None:
    if recompute != "none" and not blocks:
        return f"The model repeats no block, which is what recompute={recompute} recomputes."
    return None
