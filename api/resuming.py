"""A launch that goes on from its newest checkpoint, at the prices of how it is bought now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from .account.startable import refuse_nowhere
from .renting import differences_of

if TYPE_CHECKING:
    from ..launcher.lifecycle.context import LaunchContext
    from ..launcher.prepare.money.bought_again import AskDifferences, BoughtAgain
    from ..launcher.skypilot.placement import Place
    from ..launcher.skypilot.prices import PriceDifference
    from ..launcher.store.launch_record import LaunchRecord
    from ..launcher.store.project_limits import ProjectFile
    from ..launcher.store.sourced_plan import SourcedPlan
    from ..launcher.store.spending_limits import SpendingLimits
    from ..planner.plan.plan import Plan


def resume(
    context: LaunchContext,
    run: str,
    limits: SpendingLimits | None = None,
    *,
    spot: bool | None = None,
    reserved_usd: Decimal | None = None,
    max_hourly_cost_usd: Decimal | None = None,
    changes: Mapping[str, Any] | None = None,
    check_capacity: bool = False,
    confirm: Callable[[BoughtAgain], None] | None = None,
) -> LaunchRecord:
    """Launch a run again from its newest checkpoint; return it with its job submitted.

    Its places, its worst case and what limits count for it are at the prices of how it is bought
    now, at today's or SkyPilot's where they are higher. The limits of the project's file that it
    was launched for hold, as the file has them now; those that only warn are told.

    Args:
        context: The world.
        run: Its run id, or the beginning of it.
        limits: On what is spent.
        spot: How to buy this time; None: as before.
        reserved_usd: What the guard holds all attempts to from now on; None: as before.
        max_hourly_cost_usd: What its machines may cost an hour from now on; None: as before.
        changes: What the user changes of the guard's orders.
        check_capacity: Whether the cloud is asked first if the account can start the machines.
        confirm: Called before money is spent on it; raises where it must not be.

    Raises:
        LimitError: A limit would be passed.
        NoCapacityError: The account cannot start the machines in any of its places.
        PriceError: What it costs as it is bought now is not known.
        UsageError: It has succeeded or is still open, or the project's file is malformed.
    """
    from ..launcher.lifecycle import resume as picking_up
    from ..launcher.store.spending_limits import SpendingLimits, refuse_beyond

    record = context.ledger.find(run)
    file = _file_of(context, record)
    limits = replace(limits or SpendingLimits(), file=file)

    def buy(ended: LaunchRecord, buys_spot: bool) -> LaunchRecord:
        if max_hourly_cost_usd is not None:
            ended = ended.model_copy(update={"max_hourly_cost_usd": max_hourly_cost_usd})
        given = _plan_of(ended)
        again = _bought(ended, given, spot=buys_spot, asked_usd=reserved_usd)
        if check_capacity and given is not None:
            refuse_nowhere(given.plan, again.places, spot=buys_spot)
        for note in again.notes:
            context.tell(note)
        if limits.any:
            # In the transaction that keeps the attempt they are looked at once more.
            counted = context.ledger.counted(limits)
            refuse_beyond(again.record, counted, limits, now=context.now())
        _tell_warnings(context, again.record, file)
        if confirm is not None:
            confirm(again)
        return again.record

    return picking_up.resume(
        context,
        record,
        limits,
        spot=spot,
        reserved_usd=reserved_usd,
        change_orders=bool(changes),
        buy=buy,
    )


def _plan_of(record: LaunchRecord) -> SourcedPlan | None:
    """Return the plan of a launch; None where its estimate was replaced."""
    from ..catalog.errors import UsageError
    from ..launcher.store.estimates import Store

    try:
        return Store().find_plan(record.plan)
    except UsageError:
        return None


def _bought(
    record: LaunchRecord, given: SourcedPlan | None, *, spot: bool, asked_usd: Decimal | None
) -> BoughtAgain:
    """Return what it costs to go on with a launch.

    Raises:
        LimitError: An hour of its machines costs more than is allowed.
        PriceError: The price of a place is not known as it is bought now.
        UsageError: The folder of the launch is gone or damaged.
    """
    from ..launcher.prepare.money.bought_again import bought_again
    from ..launcher.prepare.plan_choice import catalogue_of
    from ..launcher.prepare.preflight import refuse_hourly
    from ..launcher.prepare.task.orders_file import read_orders

    orders = read_orders(record)
    held_usd = orders.max_cost_usd
    cap_usd = asked_usd or (None if held_usd is None else Decimal(str(held_usd)))
    again = bought_again(
        record,
        None if given is None else given.plan,
        catalogue_of(None if given is None else given.origin),
        spot=spot,
        price_top=orders.price_top,
        cap_usd=cap_usd,
        differences=None if given is None else _asks_skypilot(record, given.plan, spot=spot),
    )
    tried = again.places or again.record.places
    refuse_hourly(tried, record.nodes, record.max_hourly_cost_usd)
    if asked_usd is None:
        return again
    return replace(again, record=again.record.model_copy(update={"reserved_usd": asked_usd}))


def _asks_skypilot(record: LaunchRecord, plan: Plan, *, spot: bool) -> AskDifferences:
    """Return what asks SkyPilot for the price of a launch in places, as `launch` does."""
    from ..launcher.lifecycle.rewrite_task import task_bought
    from ..launcher.prepare.money.bought_again import task_again

    def differences(places: Sequence[Place], spots: Sequence[bool]) -> tuple[PriceDifference, ...]:
        task = task_again(task_bought(record, spot=spot)[0], places, spots)
        return differences_of(task, plan, places)

    return differences


def _file_of(context: LaunchContext, record: LaunchRecord) -> ProjectFile | None:
    """Return the project's file that a launch was made for, and tell where it is gone."""
    from pathlib import Path

    from .projects.limits import limits_of_file

    if record.project_file is None:
        return None
    path = Path(record.project_file)
    if not path.is_file():
        context.tell(f"{path} is gone: its limits are not checked.")
        return None
    return limits_of_file(path)


def _tell_warnings(context: LaunchContext, record: LaunchRecord, file: ProjectFile | None) -> None:
    """Tell what a project's file only warns of."""
    from ..launcher.store.project_limits import standings, warnings
    from ..launcher.store.spending_limits import SpendingLimits

    if file is None:
        return
    counted = context.ledger.counted(SpendingLimits(file=file))
    for text in warnings(standings(record, counted, file, now=context.now())):
        context.tell(text)
