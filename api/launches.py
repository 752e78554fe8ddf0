"""Launches: request, follow, stop, resume, reconcile, history. Every one goes through the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO, get_args

from .renting import priced as priced
from .renting import rent as rent
from .renting import start as start
from .resuming import resume as resume

if TYPE_CHECKING:
    from ..launcher.lifecycle.context import LaunchContext
    from ..launcher.lifecycle.engine import Engine
    from ..launcher.lifecycle.observing.observe import Finding
    from ..launcher.lifecycle.reconcile.reconcile import Discrepancy
    from ..launcher.store.burn_down import BurnDown
    from ..launcher.store.launch_record import LaunchRecord
    from ..launcher.store.launch_sums import By, LaunchSum, Wanted


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
    from ..launcher.lifecycle.reconcile.cloud_instances import (
        labelled_instances,
        terminate_on_power_off,
    )
    from ..launcher.lifecycle.reconcile.listed import listed_by
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
        listed=listed_by(labelled_instances),
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


def follow(context: LaunchContext, run: str) -> LaunchRecord:
    """Show the log of a launch until it has ended, then close its account.

    Raises:
        UsageError: There is no such launch.
        EngineError: Its results could not be fetched, or its machines not torn down.
    """
    from ..launcher.lifecycle.following import follow as to_its_end

    return to_its_end(context, context.ledger.find(run))


def look_at(context: LaunchContext, runs: Iterable[str] = ()) -> list[tuple[LaunchRecord, Finding]]:
    """Bring launches up to date and return them with what there is of each.

    Args:
        context: The world.
        runs: Run ids or their beginnings; none: every launch that is open. Of several, one that
            cannot be looked at is told, and keeps no other from being.
    """
    from ..launcher.lifecycle.resume import look_at_each, look_at_open, reconcile_run

    named = [context.ledger.find(run) for run in runs]
    if len(named) == 1:
        return [reconcile_run(context, named[0])]
    return look_at_each(context, named) if named else look_at_open(context)


def show_log(
    context: LaunchContext, run: str, out: TextIO, *, follow: bool = False, lines: int = 0
) -> None:
    """Write the log of a launch's newest job.

    Raises:
        UsageError: There is no such launch, or it has no job now.
    """
    from ..launcher.lifecycle.resume import show_log as show

    show(context, context.ledger.find(run), out, follow=follow, lines=lines)


def follow_log(context: LaunchContext, run: str, out: TextIO, *, lines: int = 0) -> LaunchRecord:
    """Write the log of a launch's newest job until it has ended, then close its account.

    Raises:
        UsageError: There is no such launch, or it has no job now.
        EngineError: Its results could not be fetched, or its machines not torn down.
    """
    from ..launcher.lifecycle.following import show_and_follow

    return show_and_follow(context, context.ledger.find(run), out, lines=lines)


def stop(
    context: LaunchContext, run: str, *, wait: Callable[[float], None] = time.sleep
) -> LaunchRecord:
    """End a launch after a checkpoint, fetch its results and tear down its machines."""
    from ..launcher.lifecycle import resume as picking_up

    return picking_up.stop(context, context.ledger.find(run), wait=wait)


def tell_to_stop(context: LaunchContext, run: str) -> bool:
    """Ask the job of a launch to end after a checkpoint, and wait for nothing: `stop` does.

    Returns whether its machines took that: not where they do not answer, are still set up or are
    those of a managed job.

    Raises:
        UsageError: There is no such launch.
    """
    from ..launcher.lifecycle import resume as picking_up

    return picking_up.tell_to_stop(context, context.ledger.find(run))


def down(
    context: LaunchContext,
    run: str,
    *,
    is_skypilot_gone: bool = False,
    is_patient: bool = True,
    wait: Callable[[float], None] = time.sleep,
) -> LaunchRecord:
    """Tear down the machines of a launch at once.

    Args:
        context: The world.
        run: Its run id, or the beginning of it.
        is_skypilot_gone: The SkyPilot that was asked is gone for good, and the user has looked for
            the machines in their cloud: where it cannot be asked, the launch is closed alone. What
            it cost is then at least what was seen, and limits count its worst case.
        is_patient: Where a broken connection holds up the results of a job that has ended, try to
            bring them for ten minutes more, and then give them up.
        wait: Seconds, between one such try and the next.

    Raises:
        LostMachineError: Such a connection broke off, and `is_patient` is false.
        EngineError: Machines are still there.
    """
    from ..launcher.lifecycle import resume as picking_up

    return picking_up.down(
        context,
        context.ledger.find(run),
        is_engine_gone=is_skypilot_gone,
        is_patient=is_patient,
        wait=wait,
    )


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
    from ..catalog.errors import UsageError, did_you_mean
    from ..launcher.store.launch_record import Outcome
    from ..launcher.store.launch_sums import Wanted

    outcomes, known = tuple(outcomes), ("open", *get_args(Outcome))
    for one in outcomes:
        if one not in known:
            raise UsageError(
                f"No launch ends with the outcome {one!r}.{did_you_mean(one, known)}",
                fix=f"take one of {', '.join(known)}.",
            )
    since = None if since_s is None else context.now() - timedelta(seconds=since_s)
    return Wanted(project=project, owner=owner, outcomes=outcomes, since=since)


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
