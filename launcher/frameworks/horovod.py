"""Horovod: the first node starts the processes of all, over SSH; the script does the rest."""

from __future__ import annotations

from ...catalog.errors import UsageError
from ...planner.plan.plan import Plan
from . import facts
from .types import Parts, Program, ScriptJob, Way
from .words import Fact, Word

HOROVOD = Program(command=("horovodrun",), package="horovod")
MPI = Program(command=("mpirun",))

MPI_WORDS = (
    *("--allow-run-as-root", "-bind-to", "none", "-map-by", "slot"),
    *("-mca", "pml", "ob1", "-mca", "btl", "^openib"),
)
"""Processes are not tied to one core, and MPI itself talks over TCP (Horovod's page on MPI)."""


def parts(job: ScriptJob) -> Parts:
    """Return the launch of a Horovod script: by horovodrun, else by mpirun itself.

    Raises:
        UsageError: the plan is more than data parallel.
    """
    if job.plan is not None:
        refuse_layout(job.plan)
    where: tuple[Word, ...] = ("-np", str(job.processes), "-H", Fact.HOST_SLOTS)
    shared = ["PATH", "LD_LIBRARY_PATH", *facts.variables(job)]
    exports = tuple(word for name in shared for word in ("-x", name))
    words = job.target.python_words
    return Parts(
        # horovodrun takes Gloo or MPI as Horovod was built, and passes every variable on.
        ways=(Way(HOROVOD, (*where, *words)), Way(MPI, (*where, *MPI_WORDS, *exports, *words))),
        first_node_only=True,
        notes=_notes(job),
    )


def refuse_layout(plan: Plan) -> None:
    """Refuse a plan that is more than data parallel."""
    layout = plan.layout
    if layout.is_data_parallel_only and not layout.zero_stage and not plan.offloaded:
        return
    what = "offloads to host memory" if plan.offloaded else "shards or splits the model"
    raise UsageError(
        f"Horovod cannot run {layout}: it {what}, and Horovod only averages gradients.",
        fix=f"take --layout dp{layout.accelerators}, or --framework torchrun, accelerate or"
        " deepspeed.",
    )


def _notes(job: ScriptJob) -> tuple[str, ...]:
    """Return what the script does itself under Horovod."""
    plan = job.plan
    ssh = "let the first node reach the others over SSH without a password"
    ssh = ssh if job.nodes > 1 else None
    if plan is None:
        return facts.present(ssh)
    return facts.present(
        ssh,
        "call hvd.init(), and wrap the optimizer in hvd.DistributedOptimizer",
        facts.batch_note(plan),
        facts.precision_note(plan),
        facts.frozen_note(plan),
        facts.recompute_note(plan),
        facts.compile_note(plan),
        *facts.sync_notes(plan),
    )
