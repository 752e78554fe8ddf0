"""A plan made ready to launch: chosen, checked, priced, and made into a SkyPilot task.

prepare(…)   →  Prepared      everything checked, nothing written
write(…)                      task.yaml and the job folder, and which code `sky launch` sends;
                              in prepared.py

Nothing here rents anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path, PurePosixPath

from ...catalog.snapshot import Catalogue
from ...planner.goodput.own_stops import NO_OWN_STOPS, OwnStops
from ...planner.plan.plan import Plan
from ...planner.search.machines.offers import NO_SPOT_PRICES, SpotPrices
from ...planner.software.checkpoint_size import usual_checkpoint_bytes
from ...profiles.user_model.spec import ModelSpec
from ..frameworks.command import parse_command
from ..guard.orders import Orders
from ..labels import slug
from ..lifecycle.engine import Engine
from ..runner.input.amount import amount_words
from ..runner.job import Job
from ..skypilot.interfaces import Interfaces, interface_notes
from ..skypilot.reservations import (
    refuse_unbought_block,
    reservation_notes,
    sky_config,
)
from ..store.measured_steps import workload_key
from ..store.sourced_plan import SourcedPlan
from ..trainer_arguments import trainer_words
from ..training_data import launched_data
from ..upload import measure
from .checks import Asked, Later, refuse_asked
from .loss_seen import loss_notes
from .money.purchase import Bought, bought, held_to_terms
from .notes import launch_notes, term_text
from .plan_choice import refuse_stale
from .prepared import Prepared
from .project import Project
from .request import LaunchRequest
from .task.guard_config import orders
from .task.job import launch_job
from .task.network_plan import asked_interfaces, network_orders, with_network
from .task.task import Task, build_task

FOLDER = "gpuplan-launches"
"""Below the folder where the command is run."""


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
    own_stops: OwnStops = NO_OWN_STOPS,
    spot_prices: SpotPrices = NO_SPOT_PRICES,
    engine: Engine | None = None,
    later: Sequence[Later] = (),
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
        own_stops: what stopped the user's own launches.
        spot_prices: of spot machines by place and day, as far as they were seen.
        engine: what rents; what it lacks here is listed with all else. None: nothing is rented.
        later: listed with what is missing, and no refusal where nothing is.

    Raises:
        UsageError: the plan is stale, or something that is asked for contradicts it.
        NoFeasiblePlanError: gpuplan's runner does not run the plan.
        PriceError: a price is not known.
        LimitError: the worst case costs more than is allowed.
    """
    plan = given.plan
    refuse_unbought_block(plan)
    refuse_stale(given, catalogue)

    @cache
    def buy() -> Bought:
        return bought(
            plan, request, catalogue, now=now(), own_stops=own_stops, spot_prices=spot_prices
        )

    asked = Asked(given=given, spec=spec, project=project, catalogue=catalogue)
    refuse_asked(asked, request, buy, engine=engine, later=later, now=now)
    machines = buy()
    run_id = f"{_name(spec, machines.request)}-{now():%Y%m%d-%H%M%S}-{unique()}"
    return _made(asked, machines, run_id=run_id, folder=folder / FOLDER / run_id, now=now())


def _made(asked: Asked, machines: Bought, *, run_id: str, folder: Path, now: datetime) -> Prepared:
    """Return the launch of what was asked for, on what was bought."""
    plan, spec, project = asked.plan, asked.spec, asked.project
    interfaces = asked_interfaces(plan, machines, asked.catalogue)
    task = _task(asked, machines, interfaces, run_id=run_id, folder=folder)
    held = _orders(asked, machines, run_id=run_id, now=now)
    job, data = _trained(asked, task, machines, run_id)
    held, job = with_network(held, job, network_orders(plan, asked.catalogue, interfaces))
    always = _always(spec, project, machines.request)
    upload = measure(project.workdir, always)
    return Prepared(
        run_id=run_id,
        plan=plan,
        task=task,
        cost=machines.cost,
        by_hour=machines.by_hour,
        places=machines.places,
        fallback=machines.fallback,
        job=job,
        data=data,
        parameters=asked.parameters,
        folder=folder,
        request=machines.request,
        project=project,
        model=None if spec is None else spec.name,
        workload=None if spec is None else workload_key(spec),
        billing=asked.billing,
        orders=held,
        notes=(
            *project.notes,
            *task.notes,
            *_trainer_notes(asked, job, machines.request),
            *_machine_notes(asked, machines, held, interfaces),
            *upload.notes,
        ),
        upload=upload,
        always=always,
        moves=machines.moves,
        term=term_text(machines),
        interfaces=interfaces,
    )


def _task(
    asked: Asked, machines: Bought, interfaces: Interfaces | None, *, run_id: str, folder: Path
) -> Task:
    """Return the SkyPilot task that launches a plan on what was bought."""
    plan = asked.plan
    return build_task(
        plan,
        asked.project,
        machines.request,
        machines.places,
        run_id=run_id,
        folder=folder,
        accelerator=machines.accelerator,
        checkpoint_bytes=_checkpoint_bytes(asked.given),
        fallback=machines.fallback,
        reservation=asked.reservation,
        instance=asked.catalogue.instances.get((plan.offer.provider, plan.offer.instance_type)),
        interfaces=interfaces,
    )


def _orders(asked: Asked, machines: Bought, *, run_id: str, now: datetime) -> Orders:
    """Return the orders of the guard on the machines."""
    held = orders(
        asked.plan,
        machines.request,
        machines.hourly,
        machines.places,
        run_id=run_id,
        requested_at=now,
        fallback=machines.fallback,
        slower=machines.slower,
        price_top=machines.price_top,
        billing=asked.billing,
    )
    return held_to_terms(held, machines)


def _machine_notes(
    asked: Asked, machines: Bought, held: Orders, interfaces: Interfaces | None
) -> tuple[str, ...]:
    """Return what is to be said of machines, how they are bought, and their network."""
    plan, reservation = asked.plan, asked.reservation
    in_reservation = sky_config(reservation, machines.places) is not None
    is_private = interfaces is not None and interfaces.is_private
    return (
        *machines.late,
        *launch_notes(
            plan,
            machines,
            held,
            billing=asked.billing,
            in_reservation=in_reservation,
            has_addresses=not (machines.request.aws.internal_ips or is_private),
        ),
        *(reservation_notes(reservation) if in_reservation else ()),
        *_network_notes(plan, machines, interfaces),
    )


def _trainer_notes(asked: Asked, job: Job | None, request: LaunchRequest) -> tuple[str, ...]:
    """Return what the loop here makes of a file's Trainer, of its loss and of a long warm-up."""
    spec = asked.spec
    if spec is None or job is None:
        return ()
    warm_up = None if request.guard.smoke else job.training.warm_up_words(job.steps)
    of_loss = loss_notes(spec, asked.plan, asked.parameters)
    return tuple(words for words in (trainer_words(spec), warm_up, *of_loss) if words is not None)


def _network_notes(plan: Plan, machines: Bought, interfaces: Interfaces | None) -> tuple[str, ...]:
    in_bucket = machines.request.outputs is not None and plan.stops is not None
    return interface_notes(
        interfaces,
        managed=machines.request.buys_spot(plan),
        region=machines.places[0].region or "",
        checkpoint_bytes=plan.stops.checkpoint_bytes if in_bucket and plan.stops else None,
    )


def _trained(
    asked: Asked, task: Task, machines: Bought, run_id: str
) -> tuple[Job | None, str | None]:
    """Return the job of gpuplan's runner and what it trains on; nothing for a script of one's own.

    Raises:
        NoFeasiblePlanError: gpuplan's runner does not run the plan.
    """
    given, spec, request = asked.given, asked.spec, machines.request
    if request.command is not None:
        return None, None
    job = launch_job(
        given,
        spec,
        asked.project,
        task,
        request,
        steps=machines.steps,
        run_id=run_id,
        accelerator=machines.accelerator,
        stops=machines.stops,
    )
    assert spec is not None, "launch_job() refuses a plan of no model"
    work = None if given.origin is None else given.origin.question.work
    size = None if work is None else work.dataset_size
    amount = amount_words(job.steps, given.plan.global_batch, size)
    data = launched_data(
        spec, synthetic=request.synthetic, smoke=request.guard.smoke, amount=amount
    )
    return job, data


def _always(
    spec: ModelSpec | None, project: Project, request: LaunchRequest
) -> tuple[PurePosixPath, ...]:
    """Return what the job needs of the folder that is sent: the model's file and its weights."""
    named = [] if request.command is not None or spec is None else [spec.path]
    if request.training.weights is not None:
        named.append(Path(request.training.weights).expanduser().absolute())
    inside = [one.relative_to(project.workdir) for one in named if _is_in(one, project.workdir)]
    return tuple(PurePosixPath(*one.parts) for one in inside)


def _is_in(path: Path, folder: Path) -> bool:
    return path != folder and path.is_relative_to(folder)


def _checkpoint_bytes(given: SourcedPlan) -> float | None:
    """Return the bytes of a checkpoint of a plan; None where neither they nor its model are known.

    Plans of versions that did not count checkpoints are taken as trained with Adam.
    """
    if given.plan.stops is not None:
        return given.plan.stops.checkpoint_bytes
    return None if given.workload is None else usual_checkpoint_bytes(given.workload.parameters)


def _name(spec: ModelSpec | None, request: LaunchRequest) -> str:
    if request.command is not None:
        return slug(PurePosixPath(parse_command(request.command).name).stem, longest=30)
    return slug(spec.name if spec is not None else "model", longest=30)
