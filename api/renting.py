"""Machines rented for a launch, at SkyPilot's prices: the next-best plan where none are left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .launch_plan import next_plan

if TYPE_CHECKING:
    from ..launcher.lifecycle.context import LaunchContext
    from ..launcher.lifecycle.engine import NoCapacityError
    from ..launcher.prepare.prepared import Prepared
    from ..launcher.prepare.request import LaunchRequest
    from ..launcher.skypilot.placement import Place
    from ..launcher.skypilot.prices import PriceDifference
    from ..launcher.store.launch_record import LaunchRecord
    from ..launcher.store.spending_limits import SpendingLimits
    from ..planner.plan.plan import Plan


def priced(prepared: Prepared) -> Prepared:
    """Return a launch at SkyPilot's price, in each place where that is above the plan's.

    Its notes say both. In a SkyPilot home of gpuplan's own (GPUPLAN_SKY_HOME) the plan's prices
    are written there first.

    Raises:
        LimitError: At that price it passes a limit of the request.
        GpuplanError: SkyPilot cannot be asked, or does not take the task.
    """
    from ..launcher.prepare.money.higher_prices import at_higher_prices

    differences = differences_of(prepared.task.config, prepared.plan, prepared.all_places)
    return at_higher_prices(prepared, differences)


def differences_of(
    task: Mapping[str, Any], plan: Plan, places: Sequence[Place]
) -> tuple[PriceDifference, ...]:
    """Return where SkyPilot's price of a task is another than is counted.

    In a SkyPilot home of gpuplan's own the plan's prices are written there first.

    Raises:
        GpuplanError: SkyPilot cannot be asked, or does not take the task.
    """
    from pathlib import Path

    from ..catalog.snapshot import load_catalogue
    from ..launcher.skypilot import home as sky_home
    from ..launcher.skypilot import prices

    home = sky_home.own_home()
    if home is not None:
        sky_home.write_prices(home, load_catalogue(None), person=Path.home())
    return prices.price_differences(task, plan, places)


def start(
    context: LaunchContext, prepared: Prepared, limits: SpendingLimits | None = None
) -> LaunchRecord:
    """Launch what `launch` prepared; return it with its job submitted.

    The intent and its worst case are in the store before anything is asked for.

    Raises:
        LimitError: The worst case would pass a limit, or one of the project's file that refuses, or
            there is no time left until the deadline; nothing is kept.
        NoCapacityError: No place has such machines; nothing was rented.
        EngineError: SkyPilot refused or failed; what was started is torn down.
        UsageError: What reaches machines without a public address is not installed here.
    """
    import shutil

    from ..launcher.lifecycle import transitions
    from ..launcher.prepare.intent import intent
    from ..launcher.prepare.preflight import refuse_past_deadline
    from ..launcher.prepare.prepared import write
    from ..launcher.skypilot.interfaces import PLUGIN, refuse_unreachable
    from ..launcher.store.spending_limits import SpendingLimits

    refuse_unreachable(prepared.interfaces, has_plugin=shutil.which(PLUGIN) is not None)
    context.engine.ready()
    # Again, as the question to rent may have stood for hours.
    asked = prepared.request
    refuse_past_deadline(
        prepared.cost, asked.deadline, now=context.now(), source=asked.deadline_source
    )
    limits = replace(limits or SpendingLimits(), file=prepared.project_file)
    prepared = held_to_limits(prepared, limits)
    record = transitions.begin(
        context,
        intent(prepared, now=context.now),
        limits,
        spot=prepared.request.buys_spot(prepared.plan),
    )
    try:
        write(prepared)
    except BaseException:
        transitions.end(context, record, "cancelled", "its folder could not be written")
        raise
    return transitions.wait_started(context, transitions.ask(context, record))


def held_to_limits(prepared: Prepared, limits: SpendingLimits | None) -> Prepared:
    """Return a launch whose guard holds it to what limits count for it, where there are any."""
    from ..launcher.prepare.intent import held_to_reservation
    from ..launcher.store.spending_limits import SpendingLimits

    held = replace(limits or SpendingLimits(), file=prepared.project_file)
    return held_to_reservation(prepared) if held.any else prepared


def rent(
    context: LaunchContext,
    prepared: Prepared,
    *,
    request: LaunchRequest | None = None,
    limits: SpendingLimits | None = None,
    confirm: Callable[[Prepared], None] | None = None,
    prepare_next: Callable[[Plan], Prepared] | None = None,
) -> LaunchRecord:
    """Launch at SkyPilot's prices, the next-best plans too where there is no capacity.

    Args:
        context: The world.
        prepared: What `launch` prepared.
        request: How a next-best plan would be launched; default: as `prepared` is.
        limits: On what is spent.
        confirm: Called with each launch before money is spent on it; raises where it must not be.
        prepare_next: Returns the next-best plan prepared; None: it is only named in the error.

    Returns:
        The launch, with its job submitted.

    Raises:
        LimitError: The worst case would pass a limit; nothing is kept.
        NoCapacityError: No place has such machines, and no other plan is left or to be taken.
        EngineError: SkyPilot refused or failed; what was started is given back.
    """
    from ..launcher.lifecycle.engine import NoCapacityError
    from ..launcher.prepare.money.project_money import held_to_project

    tried: list[Prepared] = []
    while True:
        context.engine.ready()
        prepared = held_to_project(priced(prepared), context.ledger, now=context.now)
        prepared = held_to_limits(prepared, limits)
        tried.append(prepared)
        if confirm is not None:
            confirm(prepared)
        try:
            return start(context, prepared, limits)
        except NoCapacityError as error:
            other = next_plan(tried, request or prepared.request)
            if other is None:
                raise
            if prepare_next is None:
                raise _naming(other, error) from None
        prepared = prepare_next(other)


def _naming(other: Plan, error: NoCapacityError) -> NoCapacityError:
    """Return the error with the next-best plan as its remedy."""
    return type(error)(
        error.message,
        fix=f"take the next-best plan, {other.id} ({other.place}),"
        f" with `gpuplan launch {other.id} …` or --any-plan.",
    )
