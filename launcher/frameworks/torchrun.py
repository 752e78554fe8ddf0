"""torchrun: one process for each accelerator, static rendezvous at the first node."""

from __future__ import annotations

from ...planner.plan.plan import Plan
from . import facts
from .types import Parts, Program, ScriptJob, Way
from .words import Fact, Word

TORCHRUN = Program(command=("torchrun",), module="torch.distributed.run", package="torch")


def parts(job: ScriptJob) -> Parts:
    """Return the launch of a plain torch script."""
    return Parts(ways=(torchrun_way(job),), notes=torch_notes(job.plan) if job.plan else ())


def torchrun_way(job: ScriptJob) -> Way:
    """Return how torchrun starts the job.

    On many nodes the rank of a node is given, not negotiated: rank 0 is on the first node, which
    is the one whose address all know. One node picks a free port by itself.
    """
    where: tuple[Word, ...] = ("--standalone", f"--nproc-per-node={job.per_node}")
    if job.nodes > 1:
        where = (
            f"--nnodes={job.nodes}",
            f"--nproc-per-node={job.per_node}",
            ("--node-rank=", Fact.NODE_RANK),
            ("--master-addr=", Fact.MAIN_ADDRESS),
            ("--master-port=", Fact.PORT),
        )
    return Way(TORCHRUN, (*where, *job.target.words(module="--module", program="--no-python")))


def torch_notes(plan: Plan) -> tuple[str, ...]:
    """Return what a plain torch script does itself for the plan."""
    return facts.present(
        _data_note(plan),
        *facts.parallel_notes(plan),
        facts.batch_note(plan),
        *facts.accumulation_notes(plan),
        facts.precision_note(plan),
        facts.reduce_note(plan),
        facts.frozen_note(plan),
        facts.recompute_note(plan),
        facts.compile_note(plan),
        *facts.offload_notes(plan),
        *facts.sync_notes(plan),
    )


def _data_note(plan: Plan) -> str | None:
    layout = plan.layout
    if layout.zero_stage == 0:
        many = layout.data * layout.context > 1
        return "wrap the model in DistributedDataParallel" if many else None
    if layout.zero_stage == 1:
        return "wrap the optimizer in ZeroRedundancyOptimizer, the model in DistributedDataParallel"
    kept = ", reshard_after_forward=False" if layout.zero_stage == 2 else ""
    if layout.replicas > 1:
        mesh = f'init_device_mesh("cuda", ({layout.replicas}, {layout.shard}))'
        return f"shard the model with fully_shard(…, mesh={mesh}{kept})"
    return f"shard the model with fully_shard(…{kept})"
