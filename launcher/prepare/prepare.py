"""A plan made ready to launch: chosen, checked, priced, and written as a SkyPilot task.

prepare(…)   →  Prepared      everything checked, nothing written
write(…)                      task.yaml and the job folder, which `sky launch` sends

Nothing here rents anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from ...catalog.errors import UsageError
from ...catalog.frozen import FrozenModel, Usd
from ...catalog.snapshot import Catalogue
from ...catalog.types import Provider
from ...planner.cost.bought import slower_than_steps, stops_bought
from ...planner.cost.data_cost import data_lines, in_words
from ...planner.cost.launch_cost import LaunchCost, launch_cost
from ...planner.cost.run_cost import CENT
from ...planner.plan.plan import SCHEMA_VERSION, CostLine, DataLine, Estimated, Plan, Stops
from ...profiles.user_model.spec import ModelSpec
from ..bundle import write_guard, write_job_folder, write_orders
from ..frameworks.command import parse_command
from ..guard.orders import Orders
from ..labels import slug, with_store
from ..lifecycle.shutdown_behavior import loses_nothing
from ..runner.job import Job, write_atomically
from ..skypilot.placement import TPU_SLICES, Place
from ..skypilot.prices import PriceDifference
from ..store.measured_steps import workload_key
from ..store.sourced_plan import SourcedPlan
from ..training_data import launched_data
from .deadline import bought_in_time, fallback
from .guard_config import orders, restart_s, smoke_steps, total_steps
from .job import launch_job
from .plan_choice import refuse_stale, tried
from .preflight import (
    refuse_missing_packages,
    refuse_over_budget,
    refuse_past_deadline,
    refuse_request,
    refuse_unmounted,
)
from .project import Project
from .request import LaunchRequest
from .task import Task, build_task, idle_minutes
from .unowned_cost import unowned_notes

FOLDER = "gpuplan-launches"
"""Below the folder where the command is run."""


class LaunchAnswer(FrozenModel):
    """What `gpuplan launch --dryrun --format json` prints: the task, its line and its money."""

    schema_version: Literal["1.0"] = SCHEMA_VERSION
    run: str
    plan: str
    task: dict[str, Any]
    then: dict[str, Any] | None = None
    """The task that follows on on-demand machines, so that a deadline is met."""
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
    """The job of gpuplan's runner; None where the user's own script is launched."""
    data: str | None
    """What it trains on, in words; None for a script of one's own."""
    folder: Path
    """Where `write` puts it."""
    request: LaunchRequest
    project: Project
    model: str | None
    """Its name."""
    parameters: int | None
    """Parameters of the model; None where the plan does not say."""
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
    given: SourcedPlan,
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
        spec: the model; None where the user's own script is launched.
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
    refuse_request(plan, request, needs=_needs(spec, project, request))
    accelerator = catalogue.accelerators.get(plan.offer.accelerator)
    steady = stops_bought(plan, accelerator, "on-demand")
    steps_s = (total_steps(plan, request) or 0) * plan.step_time_s.value
    slower = slower_than_steps(steady, steps_s)
    request, late = bought_in_time(plan, request, now=now(), slower=slower)
    places, others = tried(plan, request, catalogue), fallback(plan, request, catalogue)
    refuse_unmounted(places[0].cloud, request)
    steps = total_steps(plan, request)
    trained = min(steps, smoke_steps()) if steps and request.guard.smoke else steps
    stops = stops_bought(plan, accelerator, request.bought(plan))
    cost = _cost(plan, trained, places, others, request, catalogue, stops)
    whole = _cost(plan, steps, places, others, request, catalogue, stops)
    refuse_over_budget(cost, request.guard)
    refuse_past_deadline(cost, request.deadline, now=now())
    run_id = f"{_name(spec, request)}-{now():%Y%m%d-%H%M%S}-{unique()}"
    written = folder / FOLDER / run_id
    parameters = None if given.workload is None else given.workload.parameters
    task = build_task(
        plan,
        project,
        request,
        places,
        run_id=run_id,
        folder=written,
        accelerator=accelerator,
        parameters=parameters,
        fallback=others,
    )
    held = orders(
        plan,
        request,
        whole,
        places,
        run_id=run_id,
        requested_at=now(),
        fallback=others,
        slower=slower,
    )
    job = data = None
    if request.command is None:
        job = launch_job(
            given,
            spec,
            project,
            task,
            request,
            steps=trained,
            run_id=run_id,
            accelerator=accelerator,
            stops=stops,
        )
        assert spec is not None, "launch_job() refuses a plan of no model"
        data = launched_data(spec, synthetic=request.synthetic, smoke=request.guard.smoke)
    return Prepared(
        run_id=run_id,
        plan=plan,
        task=task,
        cost=cost,
        places=places,
        fallback=others,
        job=job,
        data=data,
        parameters=parameters,
        folder=written,
        request=request,
        project=project,
        model=None if spec is None else spec.name,
        workload=None if spec is None else workload_key(spec),
        billing=catalogue.providers.get(plan.offer.provider),
        orders=held,
        notes=(
            *(*project.notes, *task.notes, *late),
            *_notes(plan, request, catalogue, parameters=parameters, hours=cost.hours_expected),
            *_unowned_notes(held, plan, request, (*places, *others)),
        ),
    )


def _needs(
    spec: ModelSpec | None, project: Project, request: LaunchRequest
) -> list[Callable[[], object]]:
    """Return the checks of what gpuplan's runner needs of the model's files."""
    if request.command is not None or spec is None:
        return []
    synthetic, smoke = request.synthetic, request.guard.smoke
    return [
        lambda: launched_data(spec, synthetic=synthetic, smoke=smoke),
        lambda: refuse_missing_packages(spec, project, request),
    ]


def _unowned_notes(
    held: Orders, plan: Plan, request: LaunchRequest, places: Sequence[Place]
) -> tuple[str, ...]:
    return unowned_notes(
        held,
        places,
        image=request.image,
        tpu=plan.offer.accelerator in TPU_SLICES,
        disk_may_go=loses_nothing(managed=request.buys_spot(plan), fetch=request.fetch),
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


def in_store(prepared: Prepared, store_id: str) -> Prepared:
    """Return a launch whose machines carry the id of the store that keeps it."""
    task = prepared.task
    then = None if task.then is None else with_store(task.then, store_id)
    task = replace(task, config=with_store(task.config, store_id), then=then)
    return replace(prepared, task=task)


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
    stops: Stops | None,
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
        stops=stops,
        # Handed over to others, machines are started twice.
        idle_s=idle_minutes(request) * 60.0 + (restart_s() if others else 0.0),
        tax_percent=_tax_percent(plan),
    )


def _tax_percent(plan: Plan) -> Decimal | None:
    percent = plan.offer.tax_percent
    return None if percent is None else Decimal(str(percent))


def _data_lines(plan: Plan, parameters: int | None, hours: float | None) -> tuple[DataLine, ...]:
    """Return what the data of a launch costs; nothing where its length or model is not known."""
    if parameters is None or hours is None or plan.stops is None:
        return ()
    return data_lines(
        provider=plan.offer.provider,
        region=plan.offer.region,
        nodes=plan.nodes,
        parameters=parameters,
        checkpoint_bytes=plan.stops.checkpoint_bytes,
        hours=hours,
    )


def _notes(
    plan: Plan,
    request: LaunchRequest,
    catalogue: Catalogue,
    *,
    parameters: int | None,
    hours: float | None,
) -> tuple[str, ...]:
    """Return what was never tried, and what is not in the sums."""
    notes = []
    if plan.nodes > 1 and request.command is None and request.outputs is not None:
        notes.append(
            "checkpoints that several nodes write through a mounted bucket were tried on a"
            " simulated cloud only: check the first one before you rely on them"
        )
    beside = in_words(_data_lines(plan, parameters, hours))
    notes.append(
        "disks, buckets and traffic between regions are not in these sums"
        + (f": {beside}" if beside else "")
    )
    provider = catalogue.providers.get(plan.offer.provider)
    if provider is None or provider.billing_increment_s is None:
        notes.append(f"what {plan.offer.provider} rounds its bills to is not known")
    if request.buys_spot(plan):
        notes.append(
            "after an interruption of spot machines SkyPilot starts the job again, and it continues"
            " from its newest checkpoint"
        )
        notes.append(
            "SkyPilot runs spot launches from a controller, a machine of 4 vCPUs or more with a"
            " disk of 50 GB, if its server does not do so itself; that is not in these sums. It is"
            " stopped after 10 idle minutes, and its disk is billed until it is ended:"
            " `gpuplan reconcile` names it"
        )
    return tuple(notes)


def _name(spec: ModelSpec | None, request: LaunchRequest) -> str:
    if request.command is not None:
        return slug(PurePosixPath(parse_command(request.command).name).stem, longest=30)
    return slug(spec.name if spec is not None else "model", longest=30)
