"""The job that gpuplan's own runner carries out on the nodes of a launch. Pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

from ....catalog.errors import UsageError
from ....catalog.types import CPU_PREFIX, Accelerator
from ....planner.cost.bought import checkpoint_every_s
from ....planner.hardware.device import peak_flops
from ....planner.plan.parts import Stops
from ....profiles.user_model.spec import ModelSpec
from ...commit import commit_of
from ...runner.job import CheckpointPolicy, Job
from ...store.sourced_plan import SourcedPlan
from ...task_file import WORKDIR
from ..project import Project
from ..request import LaunchRequest
from .task import Task
from .weights import weights_on_node


def launch_job(
    given: SourcedPlan,
    spec: ModelSpec | None,
    project: Project,
    task: Task,
    request: LaunchRequest,
    *,
    steps: int | None,
    run_id: str,
    accelerator: Accelerator | None,
    stops: Stops | None,
) -> Job:
    """Return the job of a launch.

    Args:
        given: the plan.
        spec: the model as it is found here.
        project: the folder that is sent to the nodes.
        task: which says where results go.
        request: how often a checkpoint is written.
        steps: to train; None where it is not known.
        run_id: of the run.
        accelerator: of the plan; None where the catalogue does not know it.
        stops: what stops the run; None where that is not known.

    Raises:
        UsageError: the steps or the model are not known, or the nodes would not find the model.
    """
    plan, workload = given.plan, given.workload
    if steps is None:
        raise UsageError(
            "The plan does not say how much to train.",
            fix="give --steps, or estimate with --tokens, --samples or --epochs.",
        )
    request.training.refuse_beyond(steps)
    request.training.refuse_samples_of_stages(plan.layout.pipeline)
    return Job(
        spec=_on_node(spec, project),
        plan=plan.model_dump(mode="json"),
        out_dir=Path(task.out_dir),
        steps=steps,
        execution=None,
        device="cpu" if plan.offer.accelerator.startswith(CPU_PREFIX) else "cuda",
        parameters=None if workload is None else workload.parameters,
        flops_per_sample=None if workload is None else workload.flops_per_sample,
        peak_flops=None if accelerator is None else peak_flops(accelerator, plan.precision),
        synthetic=request.synthetic,
        needs_dataset=not (request.synthetic or request.guard.smoke),
        training=weights_on_node(request, project),
        usd_per_hour=plan.usd_per_hour,
        run_id=run_id,
        commit=None if spec is None else commit_of(spec.path),
        checkpoint=_checkpoints(request, stops, in_bucket=task.in_bucket),
    )


def _checkpoints(
    request: LaunchRequest, stops: Stops | None, *, in_bucket: bool
) -> CheckpointPolicy:
    """Return how often a checkpoint is written: as asked, else as often as costs least."""
    steps, seconds = request.checkpoint_every_steps, request.checkpoint_every_s
    if steps is None and seconds is None:
        if stops is None:
            return CheckpointPolicy(in_bucket=in_bucket)
        return CheckpointPolicy(every_s=checkpoint_every_s(stops), in_bucket=in_bucket)
    return CheckpointPolicy(every_steps=steps, every_s=seconds, in_bucket=in_bucket)


def _on_node(spec: ModelSpec | None, project: Project) -> ModelSpec:
    """Return the model as a node finds it: in the folder that was sent there."""
    if spec is None:
        raise UsageError(
            "The plan does not say which model it is for.",
            fix="give --model model.py (and its --param), or --command with a script.",
        )
    if spec.kind == "profile":
        raise UsageError(
            f"{spec.text} is a written Profile: it has no code to train.",
            fix="give the model file itself with --model.",
        )
    if not spec.path.is_relative_to(project.workdir):
        raise UsageError(
            f"{spec.path} is not in {project.workdir}, the folder that is sent to the nodes.",
            fix="give --workdir a folder that holds it.",
        )
    # Seen from the working directory of a node, whose own path nobody knows here; named with the
    # directory, so that a file of a package finds the package's own folder.
    place = PurePosixPath("..", WORKDIR, *spec.path.relative_to(project.workdir).parts)
    return replace(spec, path=Path(place))
