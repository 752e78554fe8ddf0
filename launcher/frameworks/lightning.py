"""Lightning: started by torchrun, so that a Trainer that asks for other ranks is refused by it.

Lightning's own launcher believes the script: one that says num_nodes=1 would train a whole copy on
each node. Under torchrun it compares the Trainer with the ranks there are and stops.
"""

from __future__ import annotations

from ...planner.plan.plan import Plan
from . import facts
from .torchrun import torchrun_way
from .types import Parts, ScriptJob

PRECISIONS = {
    "fp32": "32-true",
    "tf32": "32-true",
    "fp16-amp": "16-mixed",
    "bf16-amp": "bf16-mixed",
    "bf16": "bf16-true",
    "fp8": "transformer-engine",
}


def parts(job: ScriptJob) -> Parts:
    """Return the launch of a Lightning script."""
    return Parts(ways=(torchrun_way(job),), notes=_notes(job))


def _notes(job: ScriptJob) -> tuple[str, ...]:
    """Return the Trainer that the script must make, and what else it does itself."""
    plan = job.plan
    where = [
        f'accelerator="{job.device}"',
        f"devices={job.per_node}",
        f"num_nodes={job.nodes}",
    ]
    if plan is None:
        return (f"make the Trainer with {', '.join(where)}",)
    how = [f"strategy={_strategy(plan)}", f'precision="{PRECISIONS[plan.precision]}"']
    if plan.grad_accum > 1:
        how.append(f"accumulate_grad_batches={plan.grad_accum}")
    layout = plan.layout
    return facts.present(
        f"make the Trainer({', '.join(where + how)})",
        "install deepspeed: the strategy is its" if "deepspeed" in _strategy(plan) else None,
        facts.micro_batch_words(plan),
        f"split the layers over {layout.tensor} ranks in configure_model()"
        if layout.tensor > 1
        else None,
        *facts.parallel_notes(plan, tensor=False),
        facts.frozen_note(plan),
        facts.recompute_note(plan),
        facts.compile_note(plan),
        *_offload_notes(plan),
        *facts.sync_notes(plan),
    )


def _strategy(plan: Plan) -> str:
    layout = plan.layout
    if layout.tensor > 1:
        return (
            f"ModelParallelStrategy(data_parallel_size={layout.data * layout.context},"
            f" tensor_parallel_size={layout.tensor})"
        )
    if layout.zero_stage == 0:
        return '"ddp"'
    offloaded = "_offload" if "optimizer" in plan.offloaded else ""
    if layout.zero_stage == 1:
        return '"deepspeed_stage_1"'
    if layout.zero_stage == 2:
        return f'"deepspeed_stage_2{offloaded}"'
    if layout.replicas > 1:
        mesh = f"device_mesh=({layout.replicas}, {layout.shard})"
        return f'FSDPStrategy(sharding_strategy="HYBRID_SHARD", {mesh})'
    if "parameters" in plan.offloaded:
        return '"fsdp_cpu_offload"'
    return '"deepspeed_stage_3_offload"' if offloaded else '"fsdp"'


def _offload_notes(plan: Plan) -> tuple[str, ...]:
    said = {'"fsdp_cpu_offload"', '"deepspeed_stage_2_offload"', '"deepspeed_stage_3_offload"'}
    if _strategy(plan) in said:
        plan = plan.model_copy(
            update={"offloaded": tuple(kind for kind in plan.offloaded if kind == "activations")}
        )
    return facts.offload_notes(plan)
