"""What a script can read of its plan: variables for programs, notes for people."""

from __future__ import annotations

from ...planner.plan.plan import Plan
from ...planner.software.exchanges import held_between
from .types import ScriptJob
from .words import Word

PREFIX = "GPUPLAN_PLAN_"

OFFLOAD_WORDS = {
    "optimizer": "the optimizer's state",
    "parameters": "parameters, gradients and the optimizer's state",
    "activations": "saved activations",
}


def variables(job: ScriptJob) -> dict[str, Word]:
    """Return the environment variables that tell a script where it runs and what was planned."""
    plan = job.plan
    facts: dict[str, object] = {"NODES": job.nodes, "PER_NODE": job.per_node}
    if plan is not None:
        layout = plan.layout
        facts |= {
            "ID": plan.id,
            "LAYOUT": layout,
            "DATA": layout.data,
            "SHARD": layout.shard,
            "ZERO_STAGE": layout.zero_stage,
            "TENSOR": layout.tensor,
            "PIPELINE": layout.pipeline,
            "VIRTUAL_STAGES": layout.virtual_stages,
            "CONTEXT": layout.context,
            "EXPERT": layout.expert,
            "SEQUENCE_PARALLEL": int(layout.sequence_parallel),
            "PRECISION": plan.precision,
            "MICRO_BATCH": plan.micro_batch,
            "GRAD_ACCUM": plan.grad_accum,
            "GLOBAL_BATCH": plan.global_batch,
            "RECOMPUTE": plan.recompute,
            **({"RECOMPUTE_LAYERS": plan.recompute_layers} if plan.recompute_layers else {}),
            "COMPILE": int(plan.compile),
            "OPTIMIZER": plan.optimizer,
            "OFFLOADED": ",".join(plan.offloaded),
            "SYNC_EVERY": plan.sync_every,
        }
    own: dict[str, Word] = {PREFIX + name: str(value) for name, value in facts.items()}
    hidden: dict[str, Word] = {"CUDA_VISIBLE_DEVICES": ""} if job.device == "cpu" else {}
    return {**own, **_torch_variables(plan), **hidden}


def _torch_variables(plan: Plan | None) -> dict[str, Word]:
    """Return variables by which torch itself follows the plan, without a word in the script."""
    if plan is not None and plan.precision == "tf32":
        # Read by ATen's Context: matmuls of fp32 tensors may use TF32.
        return {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    return {}


def batch_note(plan: Plan) -> str:
    """Return what the data loader and the loop must do."""
    take = micro_batch_words(plan)
    return take if plan.grad_accum == 1 else f"{take}, and step after {plan.grad_accum} of them"


def accumulation_notes(plan: Plan, *, syncs: bool = False) -> tuple[str, ...]:
    """Return notes on what ranks exchange once a step, as the plan counts, and torch more often.

    Args:
        plan: the plan.
        syncs: whether the framework itself leaves out DDP's reductions between micro-batches.
    """
    when = "before each backward pass, where is_last says whether the optimizer steps behind it"
    said = {
        "no_sync": f"reduce gradients once a step: {plan.grad_accum - 1} of its {plan.grad_accum}"
        " backward passes under `with model.no_sync()`",
        "set_reshard_after_backward": "gather once a step:"
        f" model.set_reshard_after_backward(is_last) {when}",
        "set_requires_all_reduce": "add up replicas once a step:"
        f" model.set_requires_all_reduce(is_last) {when}",
    }
    held = held_between(plan.layout, plan.grad_accum)
    return tuple(said[one] for one in held if not (syncs and one == "no_sync"))


def micro_batch_words(plan: Plan) -> str:
    """Return what the data loader must give each rank at once."""
    samples = "1 sample" if plan.micro_batch == 1 else f"{plan.micro_batch} samples"
    return f"take micro-batches of {samples} on each data-parallel rank"


def sync_notes(plan: Plan) -> tuple[str, ...]:
    """Return a note where ranks exchange gradients less often than every step."""
    if plan.sync_every == 1:
        return ()
    return (f"average the parameters of all ranks every {plan.sync_every} steps, and not more",)


def precision_note(plan: Plan) -> str | None:
    """Return what a torch script does for the plan's precision; None for plain fp32 and tf32.

    FSDP gathers and computes in 16 bits itself: under autocast it would gather parameters in fp32,
    for which the plan counts no memory.
    """
    layout = plan.layout
    if plan.precision in ("bf16-amp", "fp16-amp") and layout.zero_stage >= 2 and layout.shard > 1:
        dtype = "torch.bfloat16" if plan.precision == "bf16-amp" else "torch.float16"
        reduced = "torch.bfloat16" if plan.reduce_dtype == "bf16" else "torch.float32"
        note = (
            "compute in 16 bits by fully_shard(…, mp_policy=MixedPrecisionPolicy("
            f"param_dtype={dtype}, reduce_dtype={reduced})), without autocast"
        )
        scaler = ', and scale the loss with torch.amp.GradScaler("cuda")'
        return note + (scaler if plan.precision == "fp16-amp" else "")
    return {
        "fp32": None,
        "tf32": None,
        "fp16-amp": 'wrap the forward pass in torch.autocast("cuda", torch.float16), and scale the'
        ' loss with torch.amp.GradScaler("cuda")',
        "bf16-amp": 'wrap the forward pass in torch.autocast("cuda", torch.bfloat16)',
        "bf16": "cast the model: model.to(torch.bfloat16)",
        "fp8": "run the linear layers in fp8 (torchao or Transformer Engine) and the rest under"
        ' torch.autocast("cuda", torch.bfloat16)',
    }[plan.precision]


def reduce_note(plan: Plan) -> str | None:
    """Return a note where FSDP reduces gradients in bf16 and `precision_note` does not say so."""
    if plan.reduce_dtype != "bf16" or plan.precision == "bf16-amp":
        return None
    return (
        "let fully_shard reduce gradients in bf16:"
        " mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)"
    )


def tf32_note(plan: Plan) -> str | None:
    """Return a note where the plan counts on TF32, which torch leaves off for products."""
    if plan.precision != "tf32":
        return None
    return 'let products run in TF32: torch.set_float32_matmul_precision("high")'


def compile_note(plan: Plan) -> str | None:
    """Return a note where the plan counts on a compiled model."""
    return "compile it: model = torch.compile(model)" if plan.compile else None


def frozen_note(plan: Plan) -> str | None:
    """Return a note where the plan keeps parameters that are not trained in fewer bits."""
    if plan.frozen_precision == "nf4":
        dtype = "torch.float16" if plan.precision == "fp16-amp" else "torch.bfloat16"
        return (
            "load the frozen base in 4 bits with bitsandbytes: BitsAndBytesConfig("
            'load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,'
            f" bnb_4bit_compute_dtype={dtype})"
        )
    if plan.frozen_precision == "bf16":
        return "keep the frozen parameters in torch.bfloat16, and what is trained in torch.float32"
    return None


def recompute_note(plan: Plan) -> str | None:
    """Return a note where the plan counts on activation checkpointing."""
    if plan.recompute == "none":
        return None
    if plan.recompute == "selective":
        return (
            f"in {recomputed_blocks(plan)} keep the results of matrix products, attention and"
            " convolutions and recompute the rest: torch.utils.checkpoint.checkpoint(block, x,"
            " use_reentrant=False, context_fn=…) with create_selective_checkpoint_contexts"
        )
    return f"recompute {recomputed_blocks(plan)}: wrap it with torch.utils.checkpoint"


def recomputed_blocks(plan: Plan) -> str:
    """Return which blocks are recomputed whole."""
    if plan.recompute_layers is None:
        return "every block"
    stages = " of each stage in the same share" if plan.layout.pipeline > 1 else ""
    return f"the first {plan.recompute_layers} blocks{stages} (not the others)"


def offload_notes(plan: Plan) -> tuple[str, ...]:
    """Return a note for each thing that the plan keeps in host memory."""
    return tuple(f"keep {OFFLOAD_WORDS[kind]} in host memory" for kind in plan.offloaded)


def parallel_notes(plan: Plan, *, tensor: bool = True) -> tuple[str, ...]:
    """Return a note for each way, beyond data parallelism, in which the script splits the model.

    Args:
        plan: the plan that the script carries out.
        tensor: False where the framework has a note of its own for tensor parallelism.
    """
    layout = plan.layout
    notes = []
    if tensor and layout.tensor > 1:
        also = " with sequence parallelism" if layout.sequence_parallel else ""
        notes.append(f"split every layer over {layout.tensor} ranks (tensor parallel){also}")
    if layout.pipeline > 1:
        rounds = f", {layout.virtual_stages} rounds" if layout.virtual_stages > 1 else ""
        notes.append(f"split the blocks into {layout.pipeline} pipeline stages{rounds}")
    if layout.context > 1:
        notes.append(f"split every sequence over {layout.context} ranks (context parallel)")
    if layout.expert > 1:
        notes.append(f"spread the experts over {layout.expert} ranks (expert parallel)")
    return tuple(notes)


def present(*notes: str | None) -> tuple[str, ...]:
    """Return the notes that there are."""
    return tuple(note for note in notes if note is not None)
