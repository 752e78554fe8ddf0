"""A plan made ready to launch: chosen, checked, priced, and made into a SkyPilot task.

prepare(…)   →  Prepared      everything checked, nothing written
write(…)                      task.yaml and the job folder, and which code `sky launch` sends;
                              in prepared.py

Nothing here rents anything.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache, partial
from pathlib import Path, PurePosixPath

from ...catalog.snapshot import Catalogue
from ...catalog.terms.pricebook import Reservation
from ...planner.goodput.own_stops import NO_OWN_STOPS, OwnStops
from ...planner.plan.plan import Plan
from ...planner.search.machines.offers import NO_SPOT_PRICES, SpotPrices
from ...planner.software.checkpoint_size import usual_checkpoint_bytes
from ...profiles.tracing_process.host_tensors import refuse_host_tensors
from ...profiles.user_model.spec import ModelSpec
from ..frameworks.command import parse_command
from ..labels import slug
from ..lifecycle.engine import Engine
from ..runner.input.amount import amount_words
from ..runner.job import Job
from ..skypilot.interfaces import PLUGIN, Interfaces, interface_notes, refuse_unreachable
from ..skypilot.placement import Place
from ..skypilot.reservations import (
    held_reservation,
    refuse_more_than_held,
    refuse_unbought_block,
    reservation_notes,
    sky_config,
)
from ..store.measured_steps import workload_key
from ..store.sourced_plan import SourcedPlan
from ..trainer_arguments import trainer_words
from ..training_data import launched_data, refuse_unreadable_source
from ..upload import measure
from .loss_seen import loss_notes
from .missing import keys_here, needs_here
from .money.purchase import Bought, bought, held_to_terms
from .notes import launch_notes, term_text
from .plan_choice import refuse_stale
from .preflight import (
    refuse_missing_packages,
    refuse_missing_script,
    refuse_no_autodown,
    refuse_over_budget,
    refuse_past_deadline,
    refuse_request,
    refuse_unmounted,
    refuse_unwritable_fetch,
)
from .prepared import Prepared
from .project import Project
from .request import LaunchRequest
from .task.guard_config import orders
from .task.job import launch_job
from .task.network_plan import asked_interfaces, network_orders, with_network
from .task.task import Task, build_task
from .wanted_torch import refuse_torch

Later = Callable[[Plan, LaunchRequest, Sequence[Place]], object]
"""Raises what one who asks for machines would be refused for later: `refuse_all` has it."""
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
    reservation = held_reservation(plan.offer, catalogue)

    @cache
    def buy() -> Bought:
        return bought(
            plan, request, catalogue, now=now(), own_stops=own_stops, spot_prices=spot_prices
        )

    here, last = _of_renting(engine, plan, request, buy, catalogue, later)
    money = lambda: _refuse_machines(plan, buy(), reservation, now=now())  # noqa: E731
    needs = [*here, *_needs(spec, project, request, plan), money]
    refuse_request(plan, request, needs=needs, later=last)
    machines = buy()
    request = machines.request
    interfaces = asked_interfaces(plan, machines, catalogue)
    in_reservation = sky_config(reservation, machines.places) is not None
    run_id = f"{_name(spec, request)}-{now():%Y%m%d-%H%M%S}-{unique()}"
    task = build_task(
        plan,
        project,
        request,
        machines.places,
        run_id=run_id,
        folder=folder / FOLDER / run_id,
        accelerator=machines.accelerator,
        checkpoint_bytes=_checkpoint_bytes(given),
        fallback=machines.fallback,
        reservation=reservation,
        instance=catalogue.instances.get((plan.offer.provider, plan.offer.instance_type)),
        interfaces=interfaces,
    )
    held = orders(
        plan,
        request,
        machines.hourly,
        machines.places,
        run_id=run_id,
        requested_at=now(),
        fallback=machines.fallback,
        slower=machines.slower,
        price_top=machines.price_top,
    )
    held = held_to_terms(held, machines)
    job, data = _trained(given, spec, project, task, machines, run_id)
    held, job = with_network(held, job, network_orders(plan, catalogue, interfaces))
    billing = catalogue.billing_of(plan.offer.provider, plan.offer.instance_type)
    always = _always(spec, project, request)
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
        parameters=None if given.workload is None else given.workload.parameters,
        folder=folder / FOLDER / run_id,
        request=request,
        project=project,
        model=None if spec is None else spec.name,
        workload=None if spec is None else workload_key(spec),
        billing=billing,
        orders=held,
        notes=(
            *project.notes,
            *task.notes,
            *_trainer_notes(given, spec, job, request),
            *machines.late,
            *launch_notes(
                plan,
                machines,
                held,
                billing=billing,
                in_reservation=in_reservation,
                has_addresses=not (
                    request.aws.internal_ips or (interfaces is not None and interfaces.is_private)
                ),
            ),
            *(reservation_notes(reservation) if in_reservation else ()),
            *_network_notes(plan, machines, interfaces),
            *upload.notes,
        ),
        upload=upload,
        always=always,
        moves=machines.moves,
        term=term_text(machines),
        interfaces=interfaces,
    )


def _trainer_notes(
    given: SourcedPlan, spec: ModelSpec | None, job: Job | None, request: LaunchRequest
) -> tuple[str, ...]:
    """Return what the loop here makes of a file's Trainer, of its loss and of a long warm-up."""
    if spec is None or job is None:
        return ()
    warm_up = None if request.guard.smoke else job.training.warm_up_words(job.steps)
    parameters = None if given.workload is None else given.workload.parameters
    of_loss = loss_notes(spec, given.plan, parameters)
    return tuple(words for words in (trainer_words(spec), warm_up, *of_loss) if words is not None)


def _network_notes(plan: Plan, machines: Bought, interfaces: Interfaces | None) -> tuple[str, ...]:
    in_bucket = machines.request.outputs is not None and plan.stops is not None
    return interface_notes(
        interfaces,
        managed=machines.request.buys_spot(plan),
        region=machines.places[0].region or "",
        checkpoint_bytes=plan.stops.checkpoint_bytes if in_bucket and plan.stops else None,
    )


def _of_renting(
    engine: Engine | None,
    plan: Plan,
    request: LaunchRequest,
    buy: Callable[[], Bought],
    catalogue: Catalogue,
    later: Sequence[Later],
) -> tuple[list[Callable[[], object]], list[Callable[[], object]]]:
    """Return the checks of what renting needs, and those for a list alone; none if nobody rents."""
    if engine is None:
        return [], []

    def reach() -> None:
        interfaces = asked_interfaces(plan, buy(), catalogue)
        refuse_unreachable(interfaces, has_plugin=shutil.which(PLUGIN) is not None)

    def last(check: Later) -> None:
        machines = buy()
        check(plan, machines.request, (*machines.places, *machines.fallback))

    listed = [partial(last, one) for one in later]
    return [*needs_here(engine, plan, request), reach], [keys_here(engine, plan), *listed]


def _refuse_machines(
    plan: Plan, machines: Bought, reservation: Reservation | None, *, now: datetime
) -> None:
    """Refuse machines that cannot hold the results, cost too much, end too late or are not held.

    Raises:
        UsageError: results would be lost, or a reservation holds fewer machines.
        LimitError: the worst case costs more, or ends later, than is allowed.
    """
    request = machines.request
    refuse_unmounted(machines.places[0].cloud, request)
    refuse_no_autodown(machines.places[0].cloud, request, managed=request.buys_spot(plan))
    refuse_over_budget(machines.cost, request.guard)
    source = request.deadline_source
    refuse_past_deadline(machines.cost, request.deadline, now=now, source=source)
    refuse_more_than_held(plan, reservation)


def _trained(
    given: SourcedPlan,
    spec: ModelSpec | None,
    project: Project,
    task: Task,
    machines: Bought,
    run_id: str,
) -> tuple[Job | None, str | None]:
    """Return the job of gpuplan's runner and what it trains on; nothing for a script of one's own.

    Raises:
        NoFeasiblePlanError: gpuplan's runner does not run the plan.
    """
    request = machines.request
    if request.command is not None:
        return None, None
    job = launch_job(
        given,
        spec,
        project,
        task,
        request,
        steps=machines.steps,
        run_id=run_id,
        accelerator=machines.accelerator,
        stops=machines.stops,
    )
    assert spec is not None, "launch_job() refuses a plan of no model"
    asked = None if given.origin is None else given.origin.question.work
    size = None if asked is None else asked.dataset_size
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


def _needs(
    spec: ModelSpec | None, project: Project, request: LaunchRequest, plan: Plan
) -> list[Callable[[], object]]:
    """Return the checks of what the job needs of the project's and the model's files."""
    always: list[Callable[[], object]] = [
        lambda: refuse_torch(project.environment, request),
        lambda: refuse_unwritable_fetch(request),
        lambda: refuse_missing_script(project, request),
    ]
    if request.command is not None or spec is None:
        return always
    synthetic, smoke = request.synthetic, request.guard.smoke
    needs: list[Callable[[], object]] = [
        *always,
        lambda: refuse_unreadable_source(spec),
        lambda: launched_data(spec, synthetic=synthetic, smoke=smoke),
        lambda: refuse_missing_packages(spec, project, request),
    ]
    if not plan.offer.is_cpu:
        needs.append(lambda: refuse_host_tensors(spec))
    return needs


def _name(spec: ModelSpec | None, request: LaunchRequest) -> str:
    if request.command is not None:
        return slug(PurePosixPath(parse_command(request.command).name).stem, longest=30)
    return slug(spec.name if spec is not None else "model", longest=30)
