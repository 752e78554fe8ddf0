"""Continue a launch that another command began: poll it and do what is due. Idempotent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TextIO

from ...catalog.errors import GpuplanError, UsageError
from ..guard.orders import STOP_FILE
from ..store.launch_record import LaunchRecord
from ..store.spending_limits import SpendingLimits
from .adopting import adopt, keep_request
from .closing import close_lost
from .context import LaunchContext
from .engine import ENDED, EngineError, LostMachineError, NoEngineError
from .gone_engine import close_without_engine
from .job.fetching import with_patience
from .job.job_end import UNASKED
from .job.job_log import log_path
from .machines import advance, end_unowned, newest_job, note_machines, tear_down
from .observing.elsewhere import is_elsewhere, refuse_elsewhere
from .observing.observe import Finding, classify, observe, silence_text
from .observing.unsure import why_unsure
from .resumable import refuse_spot_prices, refuse_to_resume
from .rewrite_task import rewrite_task
from .transitions import (
    ask,
    end,
    end_waiting,
    settle,
    this_process,
    unasked_after,
    wait_started,
)
from .waiting import Watch, orders_of, passed

LOOK_EVERY_S = 3.0
STOP_WAIT_S = 1800.0
"""How long a job may take to write its checkpoint, before the user is told that it has not."""
Wait = Callable[[float], None]
Buy = Callable[[LaunchRecord, bool], LaunchRecord]
"""A launch and whether spot machines are bought → the launch at the prices of that; raises where
it must not be."""


def reconcile_run(
    context: LaunchContext, record: LaunchRecord, *, by_hand: bool = False
) -> tuple[LaunchRecord, Finding]:
    """Update a record from the engine, and close the launch if its job is over.

    Args:
        context: the world.
        record: the launch.
        by_hand: whether the user asks for its end, and so knows that its machines are gone.

    Raises:
        ElsewhereError: another engine was asked for it than is reached from here.
        EngineError: the engine does not answer, or cannot tear down machines.
        OvertakenError: another command launched it again meanwhile.
    """
    record = context.ledger.get(record.run)  # Of many, the first took time to bring up to date.
    seen = observe(record, context.engine)
    finding = classify(record, seen)
    if finding in ("nothing", "starting"):
        return adopt(context, record, seen) if finding == "starting" else record, finding
    if finding == "unreachable":
        record = _note_unseen(context, record)
        record = record if record.state == "running" else adopt(context, record, seen)
        context.tell(f"{record.run} {silence_text(record)}")
        return record, finding
    if finding in ("waiting", "training", "job-ended"):
        record = adopt(context, _note_unseen(context, record), seen)
        assert seen.job is not None
        if finding == "job-ended":
            return settle(context, record, seen.job), finding
        found = passed(record, seen.job, orders_of(record), now=context.now_of(record))
        if found is not None:
            return end_waiting(context, record, found), "job-ended"
        return record, finding
    unsure = why_unsure(context, record, finding, seen)
    if unsure is not None and not (by_hand and unsure.can_be_closed):
        if by_hand:
            raise EngineError(unsure.text, fix=unsure.fix)
        context.tell(f"{unsure.text}; {unsure.fix}")
        return record, "unreachable"
    return close_lost(context, keep_request(context, record, seen), finding, seen), finding


def look_at_open(context: LaunchContext) -> list[tuple[LaunchRecord, Finding]]:
    """Bring every open launch up to date; one that cannot be looked at is told, as it was.

    Raises:
        NoEngineError: none can be looked at.
    """
    return look_at_each(context, context.ledger.open())


def look_at_each(
    context: LaunchContext, records: Iterable[LaunchRecord]
) -> list[tuple[LaunchRecord, Finding]]:
    """Bring launches up to date; one that cannot be looked at is told, and keeps no other from it.

    Raises:
        NoEngineError: none can be looked at.
    """
    found: list[tuple[LaunchRecord, Finding]] = []
    for record in records:
        try:
            found.append(reconcile_run(context, record))
        except NoEngineError:
            raise
        except GpuplanError as error:
            context.tell(f"{record.run} could not be looked at: {error.message}")
            found.append((record, "unreachable"))
    return found


def _note_unseen(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """Keep what machines a launch got; of those that no command has seen yet, do what is due."""
    last = record.last
    is_unseen = last is not None and last.began_at is None
    record = note_machines(context, record)
    if is_unseen:
        with context.while_starting(record):
            return record
    return record


def show_log(
    context: LaunchContext, record: LaunchRecord, out: TextIO, *, follow: bool, lines: int = 0
) -> None:
    """Write the log of the newest job of a launch; one that is followed is waited for.

    Raises:
        EngineError: its machines could not be started.
        UsageError: it has none, or its machines are gone and its log with them.
    """
    last = record.last
    if not record.is_open and last is not None and log_path(record, last.number).is_file():
        text = log_path(record, last.number).read_text(encoding="utf-8")
        out.write("".join(text.splitlines(keepends=True)[-lines:]))
        return
    if last is None or last.job_id is None:
        record, finding = reconcile_run(context, record)
        last = record.last
        if follow and finding == "starting" and last is not None and last.request_id:
            record = wait_started(context, record)
            last = record.last
    if last is None or last.job_id is None:
        raise UsageError(f"{record.run} has no job yet.", fix=f"see `gpuplan status {record.run}`.")
    if record.managed:
        # Jobs are numbered: with another SkyPilot it would be somebody else's.
        refuse_elsewhere(record, context.engine, is_known=False)
        with Watch(context, record) as watch:
            context.engine.tail_managed(last.job_id, out, follow=follow, lines=lines)
        if watch.passed is not None:
            end_waiting(context, record, watch.passed)
        return
    if context.engine.cluster(record.cluster, refresh=False) is None:
        raise UsageError(
            f"The machines of {record.run} are gone, and the log with them.",
            fix=f"what is left is at {record.results}.",
        )
    context.engine.tail(record.cluster, last.job_id, out, follow=follow, lines=lines)


def stop(context: LaunchContext, record: LaunchRecord, *, wait: Wait) -> LaunchRecord:
    """End a job after a checkpoint, fetch its results and tear down the machines.

    At once where its machines are still being set up, as there is nothing to save.

    Raises:
        UsageError: it has ended already.
        EngineError: the job does not end; the machines are left to it.
    """
    if not tell_to_stop(context, record):
        record, finding = reconcile_run(context, record)
        if not record.is_open:
            if finding == "nothing":
                raise UsageError(
                    f"{record.run} has ended already.", fix="see it with `gpuplan history`."
                )
            return record
        if finding == "starting":
            return down(context, record)
        if record.managed:
            _cancel_managed(context, record)
        else:
            context.engine.execute(record.cluster, f"touch {STOP_FILE}")
            advance(context, record, lambda one: one, what="told to stop")
    context.tell("told to stop: it writes a checkpoint first")
    waited_s = 0.0
    lost: EngineError | None = None
    while waited_s < STOP_WAIT_S:
        try:
            ended = _ended_since_told(context, record)
            lost = None
        except (NoEngineError, LostMachineError) as error:
            if lost is None:
                context.tell(f"{error.message} It is asked again.")
            ended, lost = None, error
        if ended is not None:
            return ended
        wait(LOOK_EVERY_S)
        waited_s += LOOK_EVERY_S
    raise lost or EngineError(
        f"{record.run} was told to stop {STOP_WAIT_S / 60:.0f} minutes ago and still runs.",
        fix=f"look at it with `gpuplan logs {record.run}`; `gpuplan down {record.run}` ends it now,"
        " with what its newest checkpoint holds.",
    )


def _ended_since_told(context: LaunchContext, record: LaunchRecord) -> LaunchRecord | None:
    """Return a launch whose job was told to stop, once it is closed; None while it goes on."""
    job = newest_job(context, record)
    if job is not None and job.status in ENDED:
        return settle(context, record, job, is_told=True)
    if job is not None and job.status == "waiting" and not record.managed:
        return down(context, record, why="it had not begun to train when it was stopped")
    if job is None:
        return reconcile_run(context, context.ledger.get(record.run))[0]
    return None


def tell_to_stop(context: LaunchContext, record: LaunchRecord) -> bool:
    """Ask a job to stop without polling it first, which may take half a minute.

    Returns whether its machines accepted that; a job that has ended already ignores it.
    """
    known = record.last is not None and record.last.job_id is not None
    if record.state != "running" or record.managed or not known:
        return False
    if is_elsewhere(record, context.engine):
        return False
    try:
        context.engine.execute(record.cluster, f"touch {STOP_FILE}")
    except EngineError:
        return False
    advance(context, record, lambda one: one, what="told to stop")
    return True


def down(
    context: LaunchContext,
    record: LaunchRecord,
    *,
    why: str = "taken down by hand; what the newest checkpoint does not hold is lost",
    is_engine_gone: bool = False,
    is_patient: bool = True,
    wait: Wait = time.sleep,
) -> LaunchRecord:
    """Tear down the machines of a launch at once. A second call does nothing.

    Results that are to be fetched are, where its job has ended.

    Args:
        context: the world.
        record: the launch.
        why: it is, where its job has not ended.
        is_engine_gone: whether the user says that the engine that was asked for it is gone for
            good, and has looked in the cloud: where it cannot be asked, the launch is closed alone.
        is_patient: whether results that a connection which broke off holds up are tried to be
            brought for ten minutes more, and then given up.
        wait: seconds, between one such try and the next.

    Raises:
        LostMachineError: such a connection broke off, and nobody is patient.
        EngineError: they are still there.
    """
    closed = close_without_engine(context, record) if is_engine_gone else None
    if closed is not None:
        return closed
    record = context.ledger.get(record.run)
    seen = observe(record, context.engine)
    if not record.is_open:
        refuse_elsewhere(record, context.engine, is_known=seen.is_known)
        return end_unowned(context, record) if seen.has_machines else record
    finding = classify(record, seen)
    if finding in ("never-asked", "not-started", "gone"):
        return reconcile_run(context, record, by_hand=True)[0]
    if finding == "job-ended":
        return _down_ended(context, record, wait if is_patient else None)
    record = keep_request(context, record, seen)
    if seen.request is not None and seen.request.status == "running":
        context.engine.cancel_request(seen.request.request_id)
    record = note_machines(context, record)
    tear_down(context, record)
    unasked = unasked_after(context, record)
    if unasked:
        return end(context, record, "cancelled", f"taken back: {UNASKED}", **unasked)
    had_machines = record.last is not None and record.last.began_at is not None
    return end(
        context,
        record,
        "stopped" if had_machines else "cancelled",
        why if had_machines else "taken back before any machine was there",
        # Of a managed job nobody knows how long it had machines, if it found any.
        is_bound=record.managed and had_machines,
    )


def _down_ended(context: LaunchContext, record: LaunchRecord, wait: Wait | None) -> LaunchRecord:
    """Tear down machines whose job has ended, whether its results can be fetched or not."""

    def close() -> LaunchRecord:
        return reconcile_run(context, context.ledger.get(record.run))[0]

    try:
        return close() if wait is None else with_patience(close, context.tell, wait)
    except NoEngineError:
        raise
    except EngineError as error:
        if wait is None and isinstance(error, LostMachineError):
            raise
        job = None if record.fetch is None else newest_job(context, record)
        if job is None or job.status not in ENDED:
            raise
        context.tell(f"taken down without its results: {error.message}")
        return settle(context, record, job, is_fetched=False)


def resume(
    context: LaunchContext,
    record: LaunchRecord,
    limits: SpendingLimits,
    *,
    spot: bool | None = None,
    reserved_usd: Decimal | None = None,
    change_orders: bool = False,
    buy: Buy | None = None,
) -> LaunchRecord:
    """Launch a run again, to go on from its newest checkpoint; return it with its job submitted.

    Args:
        context: the world.
        record: an ended launch that has not succeeded.
        limits: on spending.
        spot: how to buy this time; None: as before.
        reserved_usd: what limits count for the whole launch from now on; None: as before.
        change_orders: whether the guard's orders were changed, so that one that ended for them
            may go on.
        buy: prices it as it is bought this time; None: at the prices of before.

    Raises:
        UsageError: it has succeeded, is still open, or its task is gone.
        PriceError: what it costs as it is bought this time is not known.
        LimitError: a limit would be passed.
    """
    record, finding = reconcile_run(context, record)
    refuse_to_resume(record, finding, change_orders=change_orders)
    _refuse_to_resume_elsewhere(context, record)
    last = record.last
    was_spot = last is not None and last.spot
    buys_spot = was_spot if spot is None else spot
    bought = record if buy is None else buy(record, buys_spot)
    refuse_spot_prices(bought, spot=buys_spot)
    rewrite_task(record, spot=buys_spot)
    pid, host = this_process()
    record = context.ledger.begin_attempt(
        record.run,
        limits,
        spot=buys_spot,
        change=lambda one: one.model_copy(
            update={
                "managed": one.managed and buys_spot,
                "pid": pid,
                "host": host,
                "places": bought.places,
                "max_hourly_cost_usd": bought.max_hourly_cost_usd,
                "usd_worst": bought.usd_worst,
                "reserved_usd": reserved_usd or bought.reserved_usd,
            }
        ),
    )
    # Whoever launched it may have had no limits, and then its guard holds it to none.
    at_most_usd = record.reserved_usd if limits.any else None
    return wait_started(context, ask(context, record, at_most_usd=at_most_usd))


def _refuse_to_resume_elsewhere(context: LaunchContext, record: LaunchRecord) -> None:
    if is_elsewhere(record, context.engine):
        seen = observe(record, context.engine)
        refuse_elsewhere(record, context.engine, is_known=seen.is_known)


def _cancel_managed(context: LaunchContext, record: LaunchRecord) -> None:
    last = record.last
    assert last is not None and last.job_id is not None
    context.engine.cancel_managed(last.job_id, gracefully=True)
    advance(context, record, lambda one: one, what="managed job cancelled")
