"""JAX, TensorFlow and no framework: one process on each node, which owns all its accelerators."""

from __future__ import annotations

from ...planner.plan.plan import Plan
from . import facts
from .types import PYTHON, Parts, Program, ScriptJob, Way
from .words import Fact, Word

JAX_CALL = (
    'jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"],'
    ' int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"]))'
)


def jax_parts(job: ScriptJob) -> Parts:
    """Return the launch of a JAX script: where the coordinator is, which process of how many."""
    platform: dict[str, Word] = {"JAX_PLATFORMS": "cpu"} if job.device == "cpu" else {}
    variables: dict[str, Word] = {
        "JAX_COORDINATOR_ADDRESS": (Fact.MAIN_ADDRESS, ":", Fact.PORT),
        "JAX_NUM_PROCESSES": str(job.nodes),
        "JAX_PROCESS_ID": Fact.NODE_RANK,
        **platform,
    }
    call = f"before anything else call {JAX_CALL}" if job.nodes > 1 else None
    notes = facts.present(call, *_plan_notes(job.plan))
    return Parts(ways=(_way(job),), environment=variables, notes=notes)


def tensorflow_parts(job: ScriptJob) -> Parts:
    """Return the launch of a TensorFlow script: TF_CONFIG names the workers, and which this is."""
    workers = ('{"cluster": {"worker": [', Fact.WORKERS, "]}")
    task = (', "task": {"type": "worker", "index": ', Fact.NODE_RANK, "}}")
    strategy = "MultiWorkerMirroredStrategy" if job.nodes > 1 else "MirroredStrategy"
    build = f"build the model under tf.distribute.{strategy}()"
    return Parts(
        ways=(_way(job),),
        # On one node MirroredStrategy needs none.
        environment={"TF_CONFIG": (*workers, *task)} if job.nodes > 1 else {},
        notes=(build, *_plan_notes(job.plan)),
    )


def generic_parts(job: ScriptJob) -> Parts:
    """Return the launch of any program: the variables by which most programs find each other."""
    variables: dict[str, Word] = {
        "MASTER_ADDR": Fact.MAIN_ADDRESS,
        "MASTER_PORT": Fact.PORT,
        "NODE_RANK": Fact.NODE_RANK,
        "NNODES": str(job.nodes),
        "NPROC_PER_NODE": str(job.per_node),
    }
    notes = ("start one process for each accelerator where it needs that", *_plan_notes(job.plan))
    return Parts(ways=(_way(job),), environment=variables, notes=notes)


def _way(job: ScriptJob) -> Way:
    target = job.target
    if target.kind == "program":
        return Way(Program(command=(target.name,)), target.arguments)
    return Way(PYTHON, target.python_words[1:])


def _plan_notes(plan: Plan | None) -> tuple[str, ...]:
    if plan is None:
        return ()
    layout = plan.layout
    sharded = {
        0: None,
        1: f"shard the optimizer's state over {layout.shard} accelerators",
        2: f"shard gradients and the optimizer's state over {layout.shard} accelerators",
        3: f"shard parameters, gradients and the optimizer's state over {layout.shard}"
        " accelerators",
    }
    recompute = {
        "none": None,
        "selective": "recompute attention",
        "full": f"recompute {facts.recomputed_blocks(plan)}",
    }
    compute = None if plan.precision == "fp32" else f"compute in {plan.precision}"
    return facts.present(
        sharded[layout.zero_stage],
        *facts.parallel_notes(plan),
        facts.batch_note(plan),
        compute,
        facts.frozen_note(plan),
        recompute[plan.recompute],
        *facts.offload_notes(plan),
        *facts.sync_notes(plan),
    )
