"""The record of a prepared launch, which the store keeps before machines are requested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from ...catalog.names import shown_instance
from ...catalog.types import Provider
from ...catalog.units import SECONDS_PER_HOUR
from ...planner.cost.billing import billed_seconds
from ...planner.cost.launch_cost import CONTROLLER_IDLE_HOURS
from ...planner.cost.run_cost import CENT
from ...planner.cost.spot_moves import moved_ends
from ...planner.predict.measured.known_runs import run_key
from ..labels import this_user
from ..lifecycle.transitions import this_process
from ..skypilot.placement import Place
from ..store.launch_record import LaunchRecord, PricedPlace
from ..task_file import OUT_FOLDER
from .prepared import Prepared
from .request import LaunchRequest
from .task.guard_config import taxed_rate
from .task.task import idle_minutes


def intent(prepared: Prepared, *, now: Callable[[], datetime]) -> LaunchRecord:
    """Return the record of a launch that is about to be asked for, with its worst case reserved."""
    plan, request, cost = prepared.plan, prepared.request, prepared.cost
    usd_low, usd_high = _interval(prepared)
    pid, host = this_process()
    name = shown_instance(plan.offer.provider, plan.offer.instance_type)
    return LaunchRecord(
        run=prepared.run_id,
        created_at=now(),
        plan=plan.id,
        title=f"{plan.string} on {plan.nodes} x {name}",
        model=prepared.model,
        project=prepared.project.name,
        project_file=None if prepared.project_file is None else prepared.project_file.absolute,
        owner=prepared.project.owner,
        user=this_user(),
        folder=str(prepared.folder.absolute()),
        cluster=prepared.task.cluster,
        accelerator=plan.offer.accelerator,
        accelerators=plan.accelerators,
        provider=plan.offer.provider,
        workload=prepared.workload,
        plan_key=run_key(plan),
        managed=request.buys_spot(plan),
        controller_usd_per_hour=taxed_rate(cost.controller_usd_per_hour, plan) or None,
        nodes=plan.nodes,
        secrets=request.secrets,
        places=(
            *(_priced(place, spot=request.buys_spot(plan)) for place in prepared.places),
            *(_priced(place, spot=False) for place in prepared.fallback),
        ),
        usd_expected=prepared.by_hour.usd_expected,
        usd_low=usd_low,
        usd_high=usd_high,
        usd_worst=cost.usd_worst,
        reserved_usd=reserved_usd(prepared),
        term_usd=cost.usd_of_terms,
        max_hourly_cost_usd=request.guard.max_hourly_cost_usd,
        billing_increment_s=None
        if prepared.billing is None
        else prepared.billing.billing_increment_s,
        minimum_s=None if prepared.billing is None else prepared.billing.minimum_s,
        fetch=request.fetch,
        idle_minutes=prepared.idle_minutes,
        results=_results(request, prepared),
        out_dir=OUT_FOLDER if request.fetch else prepared.task.out_dir,
        pid=pid,
        host=host,
    )


def _interval(prepared: Prepared) -> tuple[Decimal | None, Decimal | None]:
    """Return 80 % of what is paid, with how the price of spot machines moves.

    Of a term that is signed for it these are its hours, as they are accounted.
    The guard holds the pace of the steps alone against the interval, which is then another.
    """
    cost = prepared.by_hour
    moves = prepared.moves
    likely, low, high = cost.usd_expected, cost.usd_low, cost.usd_high
    if moves is None or likely is None or high is None or not low:
        return low, high
    return moved_ends(likely, low, high, moves)


def _priced(place: Place, *, spot: bool) -> PricedPlace:
    return PricedPlace(infra=place.infra, usd_per_hour=place.paid_usd_per_hour, spot=spot)


def reserved_usd(prepared: Prepared) -> Decimal | None:
    """Return what limits count for a launch: its worst case, or what its guard ends it at.

    None where neither is known.
    """
    guard, cost = prepared.request.guard, prepared.cost
    bounds = [cost.usd_worst, guard.max_cost_usd]
    # A term is paid whole however early a run is ended.
    if guard.max_hours is not None and cost.usd_of_terms is None:
        top = Decimal(1) if prepared.moves is None else Decimal(str(prepared.moves.high))
        spot = [place.paid_usd_per_hour * top for place in prepared.places]
        dearest = max(*spot, *(one.paid_usd_per_hour for one in prepared.fallback), Decimal(0))
        dearest *= prepared.plan.nodes
        controller = taxed_rate(cost.controller_usd_per_hour, prepared.plan)
        dearest += controller
        idle_hours = idle_minutes(prepared.request) * 60 / SECONDS_PER_HOUR
        hours = _billed_hours(prepared.billing, guard.max_hours + idle_hours)
        after = controller * CONTROLLER_IDLE_HOURS
        bounds.append((dearest * hours + after).quantize(CENT))
    known = [bound for bound in bounds if bound is not None]
    return min(known) if known else None


def _billed_hours(billing: Provider | None, hours: float) -> Decimal:
    """Return for how long machines are billed that are there for so many hours."""
    if billing is None:
        return Decimal(str(hours))
    seconds = billed_seconds(
        hours * SECONDS_PER_HOUR,
        increment_s=billing.billing_increment_s,
        minimum_s=billing.minimum_s,
    )
    return Decimal(str(seconds)) / Decimal(SECONDS_PER_HOUR)


def held_to_reservation(prepared: Prepared) -> Prepared:
    """Return a launch whose guard ends it before it costs more than limits count for it.

    Also where its own cap is above that.
    """
    reserved, cap_usd = reserved_usd(prepared), prepared.orders.max_cost_usd
    if reserved is None or (cap_usd is not None and cap_usd <= reserved):
        return prepared
    orders = replace(prepared.orders, max_cost_usd=float(reserved))
    if prepared.cost.usd_of_terms is not None:
        # Its guard counts by the hour of the term, at which no hour after it is billed.
        known = (orders.max_hours, prepared.cost.hours_worst)
        orders = replace(orders, max_hours=min(one for one in known if one is not None))
    return replace(prepared, orders=orders)


def _results(request: LaunchRequest, prepared: Prepared) -> str:
    if request.fetch is not None:
        return request.fetch
    if request.shared is not None:
        return prepared.task.out_dir
    assert request.outputs is not None
    return f"{request.outputs.source}/{prepared.task.out_dir.rpartition('/')[2]}"
