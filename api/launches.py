"""Launches: request, follow, stop, resume, reconcile, history. Every one goes through the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from .jobs import next_plan

if TYPE_CHECKING:
    from ..launcher.lifecycle.context import LaunchContext
    from ..launcher.lifecycle.engine import Engine, NoCapacityError
    from ..launcher.lifecycle.observe import Finding
    from ..launcher.lifecycle.reconcile.reconcile import Discrepancy
    from ..launcher.prepare.prepare import Prepared
    from ..launcher.prepare.request import LaunchRequest
    from ..launcher.store.burn_down import BurnDown
    from ..launcher.store.launch_record import LaunchRecord
    from ..launcher.store.launch_sums import By, LaunchSum, Wanted
    from ..launcher.store.project_limits import ProjectFile
    from ..launcher.store.spending_limits import SpendingLimits
    from ..planner.plan.plan import Plan


def context(
    *,
    engine: Engine | None = None,
    now: Callable[[], datetime] | None = None,
    tell: Callable[[str], None] | None = None,
    log: TextIO | None = None,
    changes: Mapping[str, Any] | None = None,
) -> LaunchContext:
    """Return what launches need of the world; by default this machine's store and SkyPilot.

    Args:
        engine: What rents machines.
        now: The clock, UTC.
        tell: Called with messages for the user.
        log: Where the engine's log and the jobs' go.
        changes: What the user changes of the guard's orders (`launcher/guard/orders.py`).
    """
    from ..launcher.lifecycle.context import LaunchContext
    from ..launcher.lifecycle.reconcile.cloud_instances import terminate_on_power_off
    from ..launcher.lifecycle.shutdown_behavior import TerminateOnPowerOff
    from ..launcher.prepare.task.orders_file import renew_orders
    from ..launcher.skypilot.engine import SkyEngine
    from ..launcher.store.launches import default_ledger

    clock = now or (lambda: datetime.now(UTC))
    say = tell or (lambda _text: None)
    return LaunchContext(
        ledger=default_ledger(clock),
        engine=engine or SkyEngine(),
        now=clock,
        tell=say,
        write_orders=lambda record, at, at_most_usd: renew_orders(
            record, at, changes=changes, at_most_usd=at_most_usd
        ),
        keep_run=lambda record, run: _keep_run(record, run, clock),
        while_starting=lambda record: TerminateOnPowerOff(record, terminate_on_power_off, say),
        log=log,
    )


def _keep_run(record: LaunchRecord, run: Mapping[str, Any], now: Callable[[], datetime]) -> None:
    """Keep what a run measured, if it ran on what its plan is for."""
    from ..launcher.store.estimates import Store
    from ..launcher.store.measured_steps import is_on_planned, keep_step

    if record.workload is None or record.plan_key is None or record.accelerator is None:
        return
    if is_on_planned(run, record.accelerator):
        keep_step(
            Store(),
            run,
            run=record.run,
            workload=record.workload,
            plan_key=record.plan_key,
            now=now,
        )


def priced(prepared: Prepared) -> Prepared:
    """Return a launch with its worst case at SkyPilot's price, where that is above the plan's.

    Its notes say both. In a SkyPilot home of gpuplan's own (GPUPLAN_SKY_HOME) the plan's prices
    are written there first.

    Raises:
        GpuplanError: SkyPilot cannot be asked, or does not take the task.
    """
    from pathlib import Path

    from ..catalog.snapshot import load_catalogue
    from ..launcher.prepare.prepare import at_higher_prices
    from ..launcher.skypilot import home as sky_home
    from ..launcher.skypilot import prices

    home = sky_home.own_home()
    if home is not None:
        sky_home.write_prices(home, load_catalogue(None), person=Path.home())
    differences = prices.price_differences(prepared.task.config, prepared.plan, prepared.all_places)
    return at_higher_prices(prepared, differences)


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
    from ..launcher.prepare import prepare
    from ..launcher.prepare.intent import held_to_reservation, intent
    from ..launcher.prepare.preflight import refuse_past_deadline
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
    if limits.any:
        prepared = held_to_reservation(prepared)
    record = transitions.begin(
        context,
        intent(prepared, now=context.now),
        limits,
        spot=prepared.request.buys_spot(prepared.plan),
    )
    try:
        prepare.write(prepared)
    except BaseException:
        transitions.end(context, record, "cancelled", "its folder could not be written")
        raise
    return transitions.wait_started(context, transitions.ask(context, record))


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
    offer = other.offer
    return type(error)(
        error.message,
        fix=f"take the next-best plan, {other.id} ({offer.provider} {offer.region}"
        f" {offer.instance_type}), with `gpuplan launch {other.id} …` or --any-plan.",
    )


def follow(context: LaunchContext, run: str) -> LaunchRecord:
    """Show the log of a launch until it has ended, then close its account.

    Raises:
        UsageError: There is no such launch.
        EngineError: Its results could not be fetched, or its machines not torn down.
    """
    from ..launcher.lifecycle import resume as picking_up

    return picking_up.follow(context, context.ledger.find(run))


def look_at(context: LaunchContext, runs: Iterable[str] = ()) -> list[tuple[LaunchRecord, Finding]]:
    """Bring launches up to date and return them with what there is of each.

    Args:
        context: The world.
        runs: Run ids or their beginnings; none: every launch that is open. One of those that cannot
            be looked at is told, and keeps no other from being.
    """
    from ..launcher.lifecycle.resume import look_at_open, reconcile_run

    if runs:
        return [reconcile_run(context, context.ledger.find(run)) for run in runs]
    return look_at_open(context)


def show_log(
    context: LaunchContext, run: str, out: TextIO, *, follow: bool = False, lines: int = 0
) -> None:
    """Write the log of a launch's newest job.

    Raises:
        UsageError: There is no such launch, or it has no job now.
    """
    from ..launcher.lifecycle.resume import show_log as show

    show(context, context.ledger.find(run), out, follow=follow, lines=lines)


def stop(
    context: LaunchContext, run: str, *, wait: Callable[[float], None] = time.sleep
) -> LaunchRecord:
    """End a launch after a checkpoint, fetch its results and tear down its machines."""
    from ..launcher.lifecycle import resume as picking_up

    return picking_up.stop(context, context.ledger.find(run), wait=wait)


def down(context: LaunchContext, run: str) -> LaunchRecord:
    """Tear down the machines of a launch at once."""
    from ..launcher.lifecycle import resume as picking_up

    return picking_up.down(context, context.ledger.find(run))


def resume(
    context: LaunchContext,
    run: str,
    limits: SpendingLimits | None = None,
    *,
    spot: bool | None = None,
    reserved_usd: Decimal | None = None,
    changes: Mapping[str, Any] | None = None,
) -> LaunchRecord:
    """Launch a run again from its newest checkpoint; return it with its job submitted.

    The limits of the project's file that it was launched for hold, as the file has them now; those
    that only warn are told.

    Raises:
        LimitError: A limit would be passed.
        UsageError: It has succeeded or is still open, or the project's file is malformed.
    """
    from ..launcher.lifecycle import resume as picking_up
    from ..launcher.store.spending_limits import SpendingLimits

    record = context.ledger.find(run)
    file = _file_of(context, record, reserved_usd)
    return picking_up.resume(
        context,
        record,
        replace(limits or SpendingLimits(), file=file),
        spot=spot,
        reserved_usd=reserved_usd,
        change_orders=bool(changes),
    )


def _file_of(
    context: LaunchContext, record: LaunchRecord, reserved_usd: Decimal | None
) -> ProjectFile | None:
    """Return the project's file that a launch was made for, and tell what it only warns of."""
    from pathlib import Path

    from ..launcher.store.project_limits import standings, warnings
    from ..launcher.store.spending_limits import SpendingLimits
    from .projects.limits import limits_of_file

    if record.project_file is None:
        return None
    path = Path(record.project_file)
    if not path.is_file():
        context.tell(f"{path} is gone: its limits are not checked.")
        return None
    file = limits_of_file(path)
    again = record.model_copy(update={"reserved_usd": reserved_usd or record.reserved_usd})
    counted = context.ledger.counted(SpendingLimits(file=file))
    for text in warnings(standings(again, counted, file, now=context.now())):
        context.tell(text)
    return file


def history(
    context: LaunchContext,
    *,
    project: str | None = None,
    owner: str | None = None,
    outcomes: Iterable[str] = (),
    since_s: float | None = None,
    limit: int | None = None,
) -> list[LaunchRecord]:
    """Return launches, newest first, as they were last seen; default: every one.

    Args:
        context: The world.
        project: Only launches of it.
        owner: Only launches of this one.
        outcomes: Only launches that ended so; "open" is one of them.
        since_s: Only launches made within so many seconds.
        limit: At most so many.
    """
    return context.ledger.newest(_wanted(context, project, owner, outcomes, since_s), limit)


def _wanted(
    context: LaunchContext,
    project: str | None,
    owner: str | None,
    outcomes: Iterable[str],
    since_s: float | None,
) -> Wanted:
    from ..launcher.store.launch_sums import Wanted

    since = None if since_s is None else context.now() - timedelta(seconds=since_s)
    return Wanted(project=project, owner=owner, outcomes=tuple(outcomes), since=since)


def burn_down(context: LaunchContext, record: LaunchRecord) -> BurnDown:
    """Return what a launch has spent of its planned cost until now, and what it will come to.

    From the store alone: the forecast is the plan's cost at the present hourly rate.
    """
    from ..launcher.store.burn_down import burn_down as of

    return of(record, now=context.now())


def sums(
    context: LaunchContext,
    by: By,
    *,
    project: str | None = None,
    owner: str | None = None,
    outcomes: Iterable[str] = (),
    since_s: float | None = None,
) -> list[LaunchSum]:
    """Return launches summed up by a name of theirs, the dearest first; months in their order.

    Args:
        context: The world.
        by: owner, project, provider, month, accelerator or outcome.
        project: Only launches of it.
        owner: Only launches of this one.
        outcomes: Only launches that ended so; "open" is one of them.
        since_s: Only launches made within so many seconds.
    """
    return context.ledger.sums(_wanted(context, project, owner, outcomes, since_s), by)


def reconcile(context: LaunchContext, *, owner: str | None = None) -> list[Discrepancy]:
    """Bring every launch up to date, and look for machines that no open launch owns.

    Args:
        context: The world.
        owner: Whose machines may be ended, as `launch` names them; default: this machine's user.
            Those of others, and of other stores, are listed and left alone.
    """
    from ..catalog.snapshot import load_catalogue
    from ..launcher.lifecycle.reconcile.cloud_instances import labelled_instances
    from ..launcher.lifecycle.reconcile.reconcile import reconcile as compare

    catalogue = load_catalogue(None)
    regions = sorted({one.region for one in catalogue.offers if one.provider == "aws"})
    return compare(context, instances=lambda: labelled_instances(regions), owner=owner)


def take_down(context: LaunchContext, orphan: Discrepancy, *, confirmed: bool = False) -> None:
    """Tear down orphaned machines (no open launch owns them).

    Args:
        context: The world.
        orphan: What `reconcile` found.
        confirmed: Whether the user confirmed to end machines whose owner is not known.

    Raises:
        UsageError: They are another store's or owner's, or unattributed and not confirmed.
    """
    from ..launcher.lifecycle.reconcile.cloud_instances import terminate
    from ..launcher.lifecycle.reconcile.reconcile import take_down as tear_down

    tear_down(context, orphan, terminate=terminate, confirmed=confirmed)
