"""A plan made ready to launch: chosen, checked, priced, and written as a SkyPilot task.

prepare(…)   →  Prepared      everything looked at, nothing written
write(…)                      task.yaml and the job folder, which `sky launch` sends

Nothing here rents anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from ..catalog.errors import UsageError
from ..catalog.snapshot import Catalogue
from ..catalog.types import CPU_PREFIX, Provider
from ..planner.cost import CENT
from ..planner.device import peak_flops
from ..planner.launch_cost import LaunchCost, launch_cost
from ..planner.plan import SCHEMA_VERSION, Answer, CostLine, Estimated, Plan, Usd
from ..profiles.spec import ModelSpec
from .bundle import write_guard, write_job_folder, write_orders
from .choice import refuse_stale, tried
from .deadline import bought_in_time, fallback
from .frameworks.command import parse_command
from .guard.orders import Orders
from .guard_orders import orders, restart_s, smoke_steps, total_steps
from .measured_steps import workload_key
from .places import Place
from .plan_file import GivenPlan
from .project import Project
from .refusals import (
    refuse_dear,
    refuse_late,
    refuse_missing_packages,
    refuse_request,
    refuse_unmounted,
)
from .request import LaunchRequest, slug
from .runner.job import CheckpointPolicy, Job, write_atomically
from .sky_prices import PriceDifference
from .task import WORKDIR, Task, build_task, idle_minutes

FOLDER = "gpuplan-launches"
"""Below the folder where the command is run."""


class LaunchAnswer(Answer):
    """What `gpuplan launch --dryrun --format json` prints: the task, its line and its money."""

    schema_version: Literal["1.0"] = SCHEMA_VERSION
    run: str
    plan: str
    task: dict[str, Any]
    then: dict[str, Any] | None = None
    """The task that follows on machines that nobody takes away, so that a deadline is met."""
    command: str
    usd_per_hour: Usd
    """All nodes."""
    usd_expected: Usd | None
    usd_worst: Usd | None
    cost_lines: tuple[CostLine, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A launch that can be written."""

    run_id: str
    plan: Plan
    task: Task
    cost: LaunchCost
    places: tuple[Place, ...]
    fallback: tuple[Place, ...]
    """Where other machines are bought, so that spot machines do not cost the deadline."""
    job: Job | None
    """None where the person's own script is launched."""
    folder: Path
    """Where `write` puts it."""
    request: LaunchRequest
    project: Project
    model: str | None
    """Its name."""
    workload: str | None
    """What tells it, with its params, from others; None where a script of one's own trains."""
    billing: Provider | None
    orders: Orders
    """What the guard on the nodes holds the first launch to."""
    notes: tuple[str, ...]

    @property
    def all_places(self) -> tuple[Place, ...]:
        """Return all places, in the order in which the task tries them."""
        return (*self.places, *self.fallback)

    def answer(self) -> LaunchAnswer:
        """Return what is printed of it."""
        return LaunchAnswer(
            run=self.run_id,
            plan=self.plan.id,
            task=self.task.config,
            then=self.task.then,
            command=self.task.command,
            usd_per_hour=self.cost.usd_per_hour,
            usd_expected=self.cost.usd_expected,
            usd_worst=self.cost.usd_worst,
            cost_lines=self.cost.lines,
            notes=self.notes,
        )


def prepare(
    given: GivenPlan,
    spec: ModelSpec | None,
    project: Project,
    request: LaunchRequest,
    *,
    catalogue: Catalogue,
    folder: Path,
    now: Callable[[], datetime],
    unique: Callable[[], str],
) -> Prepared:
    """Return a launch, refused if it could lose results or its price is not known.

    Args:
        given: the plan.
        spec: the model; None where the person's own script is launched.
        project: the code that travels.
        request: how.
        catalogue: today's prices, accelerators and providers.
        folder: where the command is run; a folder below it holds what is written.
        now: the clock, for names.
        unique: returns six characters that no other run has.

    Raises:
        UsageError: the plan is stale, or something that is asked for contradicts it.
        NoFeasiblePlanError: gpuplan's runner does not run the plan.
        PriceError: a price is not known.
        LimitError: the worst case costs more than is allowed.
    """
    plan = given.plan
    refuse_stale(given, snapshot_date=catalogue.snapshot_date)
    refuse_request(plan, request)
    request, late = bought_in_time(plan, request, now=now())
    places, others = tried(plan, request, catalogue), fallback(plan, request, catalogue)
    refuse_unmounted(places[0].cloud, request)
    steps = total_steps(plan, request)
    trained = min(steps, smoke_steps()) if steps and request.guard.smoke else steps
    cost = _cost(plan, trained, places, others, request, catalogue)
    whole = _cost(plan, steps, places, others, request, catalogue)
    refuse_dear(cost, request.guard)
    refuse_late(cost, request.deadline, now=now())
    run_id = f"{_name(spec, request)}-{now():%Y%m%d-%H%M%S}-{unique()}"
    written = folder / FOLDER / run_id
    task = build_task(
        plan,
        project,
        request,
        places,
        run_id=run_id,
        folder=written,
        accelerator=catalogue.accelerators.get(plan.offer.accelerator),
        parameters=None if given.workload is None else given.workload.parameters,
        fallback=others,
    )
    held = orders(plan, request, whole, places, run_id=run_id, requested_at=now(), fallback=others)
    job = None
    if request.command is None:
        refuse_missing_packages(spec, project, request)
        job = _job(given, spec, project, task, request, trained, run_id=run_id, catalogue=catalogue)
    return Prepared(
        run_id=run_id,
        plan=plan,
        task=task,
        cost=cost,
        places=places,
        fallback=others,
        job=job,
        folder=written,
        request=request,
        project=project,
        model=None if spec is None else spec.name,
        workload=None if spec is None else workload_key(spec),
        billing=catalogue.providers.get(plan.offer.provider),
        orders=held,
        notes=(*project.notes, *task.notes, *late, *_notes(plan, request, catalogue)),
    )


def at_higher_prices(prepared: Prepared, differences: Sequence[PriceDifference]) -> Prepared:
    """Return a launch with its worst case at the higher of two prices, and both of them said."""
    if not differences:
        return prepared
    dearest = max(place.usd_per_hour for place in prepared.all_places) * prepared.plan.nodes
    higher = max(dearest, *(one.dearer_usd_per_hour for one in differences))
    cost, worst = prepared.cost, prepared.cost.usd_worst
    if worst is not None and dearest > 0:
        cost = replace(cost, usd_worst=(worst * higher / dearest).quantize(CENT))
    return replace(prepared, cost=cost, notes=(*prepared.notes, *map(str, differences)))


def write(prepared: Prepared) -> Path:
    """Write what `sky launch` needs, and return the task's file.

    Raises:
        UsageError: the folder cannot be written.
    """
    path = prepared.folder / "task.yaml"
    try:
        job = prepared.folder / "job"
        if prepared.job is not None:
            write_job_folder(job, prepared.job)
        write_guard(job)
        write_orders(job, prepared.orders)
        write_atomically(path, prepared.task.yaml)
    except OSError as error:
        raise UsageError(
            f"{prepared.folder} cannot be written: {error.strerror or error}.",
            fix="run the command in a folder that you may write to.",
        ) from None
    return path


def _cost(
    plan: Plan,
    steps: int | None,
    places: tuple[Place, ...],
    others: tuple[Place, ...],
    request: LaunchRequest,
    catalogue: Catalogue,
) -> LaunchCost:
    step = plan.step_time_s
    training = None
    if steps is not None:
        training = Estimated(
            value=steps * step.value,
            low=steps * step.low,
            high=steps * step.high,
            basis=step.basis,
        )
    return launch_cost(
        training,
        nodes=plan.nodes,
        usd_per_hour=places[0].usd_per_hour,
        dearest_usd_per_hour=max(place.usd_per_hour for place in (*places, *others)),
        billing=catalogue.providers.get(plan.offer.provider),
        # Handed over to others, machines are started twice.
        idle_s=idle_minutes(request) * 60.0 + (restart_s() if others else 0.0),
    )


def _notes(plan: Plan, request: LaunchRequest, catalogue: Catalogue) -> tuple[str, ...]:
    """Return what was never tried, and what is not in the sums."""
    notes = []
    if plan.nodes > 1 and request.command is None and request.outputs is not None:
        notes.append(
            "checkpoints that several nodes write through a mounted bucket were tried on an"
            " imitation of a cloud alone: look at the first one before you rely on them"
        )
    notes.append("disks, buckets and traffic between regions are not in these sums")
    provider = catalogue.providers.get(plan.offer.provider)
    if provider is None or provider.billing_increment_s is None:
        notes.append(f"what {plan.offer.provider} rounds its bills to is not known")
    if request.buys_spot(plan):
        notes.append(
            "interruptions of spot machines are not in these sums; after one, SkyPilot starts the"
            " job again, and it goes on from its newest checkpoint"
        )
    return tuple(notes)


def _job(
    given: GivenPlan,
    spec: ModelSpec | None,
    project: Project,
    task: Task,
    request: LaunchRequest,
    steps: int | None,
    *,
    run_id: str,
    catalogue: Catalogue,
) -> Job:
    plan, workload = given.plan, given.workload
    if steps is None:
        raise UsageError(
            "The plan does not say how much to train.",
            fix="give --steps, or estimate with --tokens, --samples or --epochs.",
        )
    accelerator = catalogue.accelerators.get(plan.offer.accelerator)
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
        usd_per_hour=plan.usd_per_hour,
        run_id=run_id,
        checkpoint=_checkpoints(request, in_bucket=task.in_bucket),
    )


def _checkpoints(request: LaunchRequest, *, in_bucket: bool) -> CheckpointPolicy:
    steps, seconds = request.checkpoint_every_steps, request.checkpoint_every_s
    if steps is None and seconds is None:
        return CheckpointPolicy(in_bucket=in_bucket)
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


def _name(spec: ModelSpec | None, request: LaunchRequest) -> str:
    if request.command is not None:
        return slug(PurePosixPath(parse_command(request.command).name).stem, longest=30)
    return slug(spec.name if spec is not None else "model", longest=30)
