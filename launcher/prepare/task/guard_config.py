"""From a plan, its cost and what is asked for to the orders of the guard on the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from ....catalog.errors import LimitError
from ....catalog.types import Provider
from ....catalog.units import SECONDS_PER_HOUR
from ....planner.cost.launch_cost import CONTROLLER_IDLE_HOURS, LaunchCost
from ....planner.cost.start_up import start_up_s, startups
from ....planner.plan.plan import Plan
from ...guard.decisions.verdicts import SAME_USD
from ...guard.orders import DEFAULT_GRACE_S, Busy, HandOver, Orders, ProjectionOrders, TimerOrders
from ...labels import slug
from ...skypilot.placement import TPU_SLICES, Place
from ..money.power_off import COMMAND, powered_off_on
from ..request import LaunchRequest
from .run_script import UPLOAD_WAIT_S
from .task import idle_minutes

AUTODOWN_POLL_S = 60.0
"""SkyPilot 0.14 looks once a minute whether machines are idle (sky/skylet/events.py)."""
SILENCE_S = 900.0
"""Longer than the ten minutes after which a collective that hangs ends the run by itself."""
STARTUP_S = 3600.0
"""From the start to the first step: a large checkpoint is read, kernels are compiled."""
SILENT_STEPS = 20.0
"""Where steps are long, as many of the slowest predicted ones may pass without a heartbeat."""
SETUP_S = 9000.0
"""The longest set-up, where neither --max-hours nor --max-cost is less: two hours and a quarter of
them. Two hours is how long flash-attention says that its build takes without ninja, on one core
(https://github.com/Dao-AILab/flash-attention#installation-and-features, read 2026-11-22)."""
TEARDOWN_S = 900.0
"""Beyond every limit, for SkyPilot to tear down: as long as its slowest start (startup.toml)."""
UNOWNED_MORE_S = 1800.0
"""Beyond the longest time in which neither set-up nor a run is in progress on a healthy node."""
DEFAULT_MORE_S = 86400.0
"""Beyond twice the slowest that is predicted, where nothing limits a run: the projection has ended
one that is slower by then, so that this holds where no guard does."""
DEFAULT_TIMES = 2.0
PROJECTED = ProjectionOrders(total_steps=0)


def smoke_steps() -> int:
    """Return how many steps a run takes that only tells what the whole one costs.

    >>> smoke_steps()
    33
    """
    return PROJECTED.settled + PROJECTED.steps


def total_steps(plan: Plan, request: LaunchRequest) -> int | None:
    """Return the steps of the whole run; None where neither the plan nor the user says."""
    return request.steps or (None if plan.run is None else plan.run.steps)


def orders(
    plan: Plan,
    request: LaunchRequest,
    cost: LaunchCost,
    places: tuple[Place, ...],
    *,
    run_id: str,
    requested_at: datetime,
    fallback: tuple[Place, ...] = (),
    slower: float = 1.0,
    price_top: float = 1.0,
    billing: Provider | None = None,
) -> Orders:
    """Return what the guard holds a run to, for its first launch.

    Later launches replace `requested_at_s`, `spent_before_usd` and `hours_before`.

    Args:
        plan: for its steps and their time.
        request: the limits.
        cost: for what was estimated.
        places: where machines are tried.
        run_id: of the run.
        requested_at: when this launch is asked for, with its time zone or in local time.
        fallback: where they are bought on demand, if those in `places` are spot machines that may
            cost the deadline.
        slower: what the run takes for every second of its steps, on machines bought on demand.
        price_top: how high the price of spot machines may rise, over today's.
        billing: how the provider bills these machines; None where that is not known.

    Raises:
        LimitError: the limit leaves nothing to train with.
    """
    guard = request.guard
    own_runner = request.command is None
    quiet_s = SILENT_STEPS * plan.step_time_s.high
    # SkyPilot's controller goes with the job, wherever its machines are.
    beside = float(taxed_rate(cost.controller_usd_per_hour, plan))
    spot, others = rates(places, plan.nodes, beside), rates(fallback, plan.nodes, beside)
    dearest = max((*spot.values(), *others.values()))
    made = Orders(
        run_id=slug(run_id),
        usd_per_hour=dearest,
        usd_per_hour_at=others or spot,
        spot_usd_per_hour_at=spot if others else {},
        requested_at_s=requested_at.timestamp(),
        max_cost_usd=None if guard.max_cost_usd is None else float(guard.max_cost_usd),
        price_top=price_top,
        minimum_s=0.0 if billing is None else float(billing.minimum_s or 0),
        increment_s=0.0 if billing is None else float(billing.billing_increment_s or 0),
        max_hours=guard.max_hours,
        tail_s=tail_s(request),
        after_usd=beside * float(CONTROLLER_IDLE_HOURS),
        waiting_usd_per_hour=beside,
        grace_s=DEFAULT_GRACE_S,
        own_runner=own_runner,
        others_upload=plan.nodes > 1 and request.outputs is not None,
        heartbeat_timeout_s=max(SILENCE_S, quiet_s) if own_runner else None,
        startup_timeout_s=max(STARTUP_S, quiet_s) if own_runner else None,
        min_gpu_utilization=None
        if guard.min_gpu_utilization is None
        else Busy(fraction=guard.min_gpu_utilization, for_s=guard.idle_for_s),
        projection=_projection(plan, request, cost, dearest),
        smoke=guard.smoke,
        deadline_s=None if request.deadline is None else request.deadline.timestamp(),
        hand_over=_hand_over(plan, request, slower) if others else None,
        notices=request.buys_spot(plan),
        timer=_timer(plan, request, cost, (*places, *fallback)),
    )
    refuse_no_room(made)
    return made


def at_rates(made: Orders, spot: Mapping[str, float], others: Mapping[str, float]) -> Orders:
    """Return orders at other prices, and what was estimated in proportion.

    Args:
        made: the orders.
        spot: what all that a job has costs in each place where spot machines are bought, $/h.
        others: the same where they are bought on demand.
    """
    dearest = max((*spot.values(), *others.values()))
    projection, before = made.projection, made.usd_per_hour
    if projection is not None and before and dearest != before:
        projection = projection.times(dearest / before)
    return replace(
        made,
        usd_per_hour=dearest,
        usd_per_hour_at=others or spot,
        spot_usd_per_hour_at=spot if others else {},
        projection=projection,
        price_top=made.price_top if spot else 1.0,
        hand_over=made.hand_over if spot and others else None,
        notices=bool(spot),
    )


def _timer(
    plan: Plan, request: LaunchRequest, cost: LaunchCost, places: tuple[Place, ...]
) -> TimerOrders:
    """Return when a machine ends itself, and how, if nothing else has ended it."""
    upload_s = UPLOAD_WAIT_S if request.outputs is not None else 0.0
    # One node may wait for the set-up of another; after the run come uploads and idle minutes.
    quiet_s = max(SETUP_S, upload_s + tail_s(request))
    default_end_s = None
    if cost.hours_worst is not None and request.command is None:
        slowest_s = cost.hours_worst * SECONDS_PER_HOUR
        default_end_s = DEFAULT_TIMES * slowest_s + DEFAULT_MORE_S + upload_s + tail_s(request)
    return TimerOrders(
        setup_s=SETUP_S,
        unowned_s=quiet_s + UNOWNED_MORE_S,
        margin_s=upload_s + TEARDOWN_S,
        default_end_s=default_end_s,
        power_off=COMMAND,
        power_off_on=powered_off_on(
            [one.cloud for one in places],
            image=request.image,
            tpu=plan.offer.accelerator in TPU_SLICES,
        ),
    )


def restart_s() -> float:
    """Return how long the start of machines takes at worst, seconds."""
    return sum(one.high_s for one in startups())


def tail_s(request: LaunchRequest) -> float:
    """Return how long the machines cost after the job, where nothing but autodown ends them."""
    return idle_minutes(request) * 60.0 + AUTODOWN_POLL_S


def taxed_rate(usd_per_hour: Decimal, plan: Plan) -> Decimal:
    """Return a price with the tax that is paid on a plan's machines, $/h."""
    return usd_per_hour * (1 + Decimal(str(plan.offer.tax_percent or 0)) / 100)


def rates(places: tuple[Place, ...], nodes: int, beside: float) -> dict[str, float]:
    """Return what all that a job has in a place costs, $/h."""
    return {place.infra: float(place.paid_usd_per_hour) * nodes + beside for place in places}


def _hand_over(plan: Plan, request: LaunchRequest, slower: float) -> HandOver | None:
    """Return when a run leaves spot machines; None where it is not known how far it is."""
    steps = total_steps(plan, request)
    if steps is None or request.command is not None:
        return None
    return HandOver(
        total_steps=steps,
        step_s=plan.step_time_s.high,
        restart_s=restart_s(),
        slower=slower,
    )


def _projection(
    plan: Plan, request: LaunchRequest, cost: LaunchCost, rate: float
) -> ProjectionOrders | None:
    """Return what the projection is held against, at the dearest place's price.

    The interval is that of the training time; a slow start, which is paid by then, widens its top,
    so that only slow steps end a run.
    """
    steps = total_steps(plan, request)
    if steps is None:
        return None
    # What was estimated holds the tax, and so does the rate.
    first = float(taxed_rate(cost.usd_per_hour + cost.controller_usd_per_hour, plan))
    share = rate / first if first else 1.0
    tail_usd = tail_s(request) / SECONDS_PER_HOUR * rate
    slower_s = sum(one.high_s - one.value_s for one in startups())
    slower_usd = slower_s / SECONDS_PER_HOUR * rate

    def in_all(usd: object, more_usd: float = 0.0) -> float | None:
        return None if usd is None else float(str(usd)) * share + tail_usd + more_usd

    low_usd, high_usd = cost.usd_of_run or (None, None)
    return ProjectionOrders(
        total_steps=steps,
        expected_usd=in_all(cost.usd_expected),
        low_usd=in_all(low_usd),
        high_usd=in_all(high_usd, slower_usd),
        action=request.guard.on_projection,
    )


def refuse_no_room(made: Orders, *, known_start_s: float | None = None) -> None:
    """Refuse limits that earlier launches, the start and the end of the machines use up.

    Args:
        made: the orders with their limits.
        known_start_s: what the same run's start took at most; None: not known, and it is assumed.

    Raises:
        LimitError: they do, so that machines would be paid for and nothing trained.
    """
    start_s = start_up_s()
    start_s = start_s if known_start_s is None else min(start_s, known_start_s)
    idle_s = start_s + made.tail_s
    idle_usd = made.billed_s(idle_s) * made.usd_per_s
    idle_hours = idle_s / SECONDS_PER_HOUR
    said = f"{start_s / 60:.0f} minutes to start and up to {made.tail_s / 60:.0f} idle at the end"
    spent_usd, spent_hours = made.spent_before_usd, made.hours_before
    if made.most_usd is not None and not _has_room(made, spent_usd, idle_s):
        before = f" ${spent_usd:,.2f} are spent, and" if spent_usd else ""
        if made.minimum_s > idle_s:
            said += f" ({made.minimum_s / 60:.0f} minutes are billed at least)"
        if made.after_usd:
            said += f", and SkyPilot's controller ${made.after_usd:,.2f} more until it stops"
        raise LimitError(
            f"--max-cost ${made.max_cost_usd:,.2f} leaves nothing to train with:{before} these"
            f" machines cost ${idle_usd:,.2f} for {said}.",
            fix="allow more, choose fewer or cheaper machines, or give --outputs or --shared"
            " instead of --fetch, with which they stay for an hour.",
        )
    if made.max_hours is not None and spent_hours + idle_hours >= made.max_hours:
        before = f" {spent_hours:,.2f} hours are used, and" if spent_hours else ""
        raise LimitError(
            f"--max-hours {made.max_hours:g} leaves nothing to train in:{before} there are {said}.",
            fix="allow more, or give --outputs or --shared instead of --fetch, with which the"
            " machines stay for an hour.",
        )


def _has_room(made: Orders, spent_usd: float, idle_s: float) -> bool:
    """Return whether a cap leaves money, or time that is billed in any case, to train."""
    assert made.most_usd is not None
    left_usd = made.most_usd - spent_usd
    if idle_s * made.usd_per_s >= left_usd:
        return False
    return made.billed_s(idle_s) * made.usd_per_s < left_usd + SAME_USD


def refuse_too_late(made: Orders) -> None:
    """Refuse a launch whose machines would start after its deadline.

    Raises:
        LimitError: they would, and be paid for to train nothing.
    """
    start_s = start_up_s()
    if made.deadline_s is not None and made.requested_at_s + start_s >= made.deadline_s:
        left_s = made.deadline_s - made.requested_at_s
        when = f"is in {left_s / 60:.0f} minutes" if left_s > 0 else "has passed"
        raise LimitError(
            f"The deadline {when}, and these machines take {start_s / 60:.0f} minutes to start:"
            " they would be paid for, and train nothing.",
            fix="give a later one with --deadline.",
        )
