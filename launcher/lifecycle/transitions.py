"""A launch from its intent to its end. The store records an intent before any money is spent.

begin(…)    keep the intent and its worst case        state intended
ask(…)      ask the engine for machines               state requested
attend(…)   wait for them, then for the job           state running
settle(…)   fetch results, tear down the machines     state ended

Each step reads the current record, so that any later command continues where one was interrupted,
and a step that is repeated does nothing.
"""

from __future__ import annotations

import io
import os
import platform
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from ...catalog.errors import GpuplanError, UsageError
from ..runner.processes.error_text import first_line
from ..store.estimates import StoreError
from ..store.launch_record import Attempt, LaunchRecord, Outcome
from ..store.launches import OvertakenError
from ..store.spending_limits import SpendingLimits
from ..task_file import label_task
from ..upload import gather
from .context import LaunchContext
from .engine import (
    ENDED,
    EngineError,
    EngineJob,
    LostTouchError,
    NoCapacityError,
    NoEngineError,
)
from .job.fetching import bring_results, keep_measured
from .job.guard_report import run_in_log, word_in_log
from .job.job_end import JobEnd, without_machines
from .job.job_log import Copied, keep_log
from .machines import (
    Changes,
    advance,
    as_it_stands,
    cost_of_failed_start,
    end_unowned,
    newest_job,
    note_machines,
    tear_down,
    with_times,
)
from .observing.observe import goes_on, requests_of
from .waiting import Passed, Watch

UNSEEN: tuple[Outcome, ...] = ("preempted", "lost")
"""Of machines that went; one who saw the job end knows better."""


def begin(
    context: LaunchContext, record: LaunchRecord, limits: SpendingLimits, *, spot: bool
) -> LaunchRecord:
    """Keep a launch before anything is asked for.

    Raises:
        LimitError: its worst case would pass a limit; nothing is kept.
    """
    up = context.ledger.uptime()
    attempt = Attempt(number=1, spot=spot, asked_at=context.now(), asked_uptime=up)
    record = record.model_copy(update={"attempts": (attempt,)})
    context.ledger.reserve(record, limits)
    return record


def ask(
    context: LaunchContext, record: LaunchRecord, *, at_most_usd: Decimal | None = None
) -> LaunchRecord:
    """Ask the engine for the machines of the newest attempt.

    Args:
        context: the world.
        record: the launch.
        at_most_usd: what its guard is to hold all attempts to, if its orders allow more.

    Raises:
        UsageError: a secret is not set, or the folder of the launch is gone.
        EngineError: the engine refused; the launch has ended and cost nothing.
        OvertakenError: another command has taken it back; no machines are left.
    """
    task = Path(record.folder) / "task.yaml"
    is_sent = False
    try:
        context.engine.ready()
        secrets = _secrets(record)
        if not task.is_file():
            raise UsageError(
                f"{task} is gone, and it is what would be launched.", fix="launch the plan again."
            )
        label_task(task, context.ledger.store_id())
        gather(task.parent)
        context.write_orders(record, context.now(), at_most_usd)
        _keep_whom(context, record)
        launch = context.engine.launch_managed if record.managed else context.engine.launch
        is_sent = True
        request_id = launch(task, record.cluster, secrets)
    except OvertakenError:
        raise
    except (GpuplanError, OSError) as error:
        if is_sent and (isinstance(error, LostTouchError) or _may_be_asked(context, record)):
            raise
        end(context, record, "cancelled", f"nothing was asked for: {first_line(error)}")
        raise
    try:
        return advance(
            context,
            record,
            lambda one: one.with_last(request_id=request_id).model_copy(
                update={"state": "requested"}
            ),
            what=f"requested as {request_id}",
            open_only=True,
        )
    except OvertakenError:
        context.engine.cancel_request(request_id)
        end_unowned(context, record)
        raise


def _keep_whom(context: LaunchContext, record: LaunchRecord) -> None:
    """Keep which SkyPilot is asked, before it is: another one will not know the machines.

    Raises:
        OvertakenError: another command has taken the launch back.
    """
    address = context.engine.address()
    where = "" if address is None else f"asked of SkyPilot at {address.server}"
    advance(
        context,
        record,
        lambda one: None if address is None else one.with_last(engine=address),
        what=where,
        open_only=True,
    )


def wait_started(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """Wait until the machines are there and the job is submitted.

    Raises:
        NoCapacityError: there are none; the launch has ended, and what some of its nodes may have
            cost until then is counted as at most.
        EngineError: they could not be started, and what was started is torn down; or the wait
            broke off, and the launch is still open.
        OvertakenError: another command has ended it; no machines are left.
    """
    last = record.last
    assert last is not None and last.request_id is not None
    wait = context.engine.wait_managed if record.managed else context.engine.wait_launched
    try:
        with context.while_starting(record):
            job_id = wait(last.request_id, context.log)
    except NoCapacityError as error:
        tear_down(context, record)
        cost = cost_of_failed_start(context, record, no_capacity=True)
        end(context, record, "no-capacity", error.message, **cost)
        raise
    except EngineError as error:
        # A connection that is lost, as of a laptop that sleeps, ends nothing in the engine.
        if isinstance(error, NoEngineError) or goes_on(record, context.engine):
            raise _broke_off(record, error) from None
        record = note_machines(context, record)
        tear_down(context, record)
        cost = cost_of_failed_start(context, record, no_capacity=False)
        end(context, record, "failed", error.message, trained=False, **cost)
        raise
    record = note_machines(context, record)
    try:
        return advance(
            context,
            record,
            lambda one: one.with_last(job_id=job_id).model_copy(update={"state": "running"}),
            what=f"job {job_id} submitted",
            open_only=True,
        )
    except OvertakenError:
        end_unowned(context, record)
        raise


def attend(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """Show the job's log until it ends, then end the launch.

    The launch is still open where the log ended before the job did.

    Raises:
        EngineError: results could not be brought, or machines not torn down; a later command
            tries again.
    """
    last = record.last
    assert last is not None and last.job_id is not None
    if record.managed:
        watch = Watch(context, record)
        try:
            with watch:
                context.engine.tail_managed(last.job_id, context.log or io.StringIO(), follow=True)
        except EngineError as error:
            context.tell(f"the log broke off: {error.message}")
            return record
        if watch.passed is not None:
            return end_waiting(context, record, watch.passed)
        return settle_if_ended(context, record)
    out = Copied(context.log)
    try:
        status = context.engine.tail(record.cluster, last.job_id, out, follow=True)
    except EngineError as error:
        context.tell(f"the log broke off: {error.message}")
        return record
    if status not in ENDED:
        return record
    # Every question now is asked while machines cost money and have nothing to do.
    return settle(
        context, record, EngineJob(job_id=last.job_id, status=status), followed=out.getvalue()
    )


def settle_if_ended(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """End a launch whose job has ended; leave another as it is."""
    job = newest_job(context, record)
    if job is None or job.status not in ENDED:
        return record
    return settle(context, record, job)


def end_waiting(context: LaunchContext, record: LaunchRecord, found: Passed) -> LaunchRecord:
    """End a managed job that waits for machines beyond its limits, as its guard would have.

    Raises:
        EngineError: it could not be cancelled; a later command tries again.
        OvertakenError: the run was launched again since.
    """
    context.tell(f"{record.run} is ended: {found.text}")
    record = note_machines(context, record)
    tear_down(context, record)
    # Without a word of the engine on it, machines may have come and gone unseen.
    facts = {"is_bound": True, **unasked_after(context, record)}
    return end(context, record, "guarded", found.text, guard_why=found.why, **facts)


def unasked_after(context: LaunchContext, record: LaunchRecord) -> Changes:
    """Return what a launch keeps that was just ended and is known to have had no machine."""
    if not record.managed:
        return {}
    try:
        job = newest_job(context, record)
    except EngineError:
        return {}
    return without_machines(record, job, now=context.now_of(record))


def settle(
    context: LaunchContext,
    record: LaunchRecord,
    job: EngineJob,
    *,
    followed: str = "",
    is_fetched: bool = True,
    is_told: bool = False,
) -> LaunchRecord:
    """Fetch the results of a job that has ended, tear down its machines, and record the cost.

    Args:
        context: the world.
        record: the launch.
        job: its newest, which has ended.
        followed: its log as it was shown; it is asked for again where its end is not in it.
        is_fetched: whether its results are fetched, where they are to be.
        is_told: whether it was told to stop, which ends it as if its work were done.

    Raises:
        OvertakenError: the run was launched again since; nothing of that is touched.
    """
    record = as_it_stands(context, record)
    log = keep_log(
        context.engine, record, job, followed if word_in_log(followed) is not None else None
    )
    word, run = word_in_log(log), run_in_log(log)
    job = with_times(context, record, job) if word is None else job
    if run is not None:
        keep_measured(context, record, run)
    has_left = None
    if record.fetch is not None and is_fetched:
        has_left = bring_results(context, record, job)
    ended = JobEnd(record=record, job=job, log=log, word=word)
    outcome, why = ended.outcome(has_left=has_left, is_told=is_told)
    record = _tear_down_seen(context, record, job, outcome, ended.guard_why)
    facts = replace(ended, record=record).facts(now=context.now_of(record), tell=context.tell)
    return end(context, record, outcome, why, **facts)


def _tear_down_seen(
    context: LaunchContext,
    record: LaunchRecord,
    job: EngineJob,
    outcome: Outcome,
    guard_why: str | None,
) -> LaunchRecord:
    """Keep how a job was seen to end, then tear down its machines.

    Before its machines go: a command that then looks must not take it for lost.
    """
    try:
        record = advance(
            context,
            record,
            lambda one: one.with_last(seen=outcome).model_copy(update={"guard_why": guard_why}),
            what=f"job {job.job_id} {job.status}",
        )
    except StoreError:  # They go even where nothing can be kept.
        tear_down(context, record)
        raise
    tear_down(context, record)
    return record


def end(
    context: LaunchContext,
    record: LaunchRecord,
    outcome: Outcome,
    why: str,
    *,
    is_bound: bool = False,
    **changes: Any,
) -> LaunchRecord:
    """Close a launch: its actual cost replaces its reservation.

    One that another command has closed stays as it is, unless that had not seen how it ended.

    Raises:
        OvertakenError: the run was launched again since.
    """
    now = context.now_of(record)  # Once: the clock may be set while the store is waited for.

    def close(one: LaunchRecord) -> LaunchRecord | None:
        last = one.last
        if last is not None:
            is_unseen = last.is_bound and last.outcome in (*UNSEEN, last.seen)
            if last.outcome is not None and (not is_unseen or outcome in UNSEEN):
                # An earlier version opened again what another command had closed.
                closed = {"state": "ended", "outcome": last.outcome}
                return one.model_copy(update=closed) if one.is_open else None
            ended_at = last.ended_at
            if ended_at is None and last.began_at is not None:
                ended_at = max(now, last.began_at)
            facts = {"ended_at": ended_at, "outcome": outcome, "is_bound": is_bound, **changes}
            if one.fetch is not None and last.are_results_here is None:
                facts["are_results_here"] = False
            one = one.with_last(**facts)
        return one.model_copy(update={"state": "ended", "outcome": outcome, "why": why})

    return advance(context, record, close, what=f"ended: {outcome}: {why}")


def _secrets(record: LaunchRecord) -> dict[str, str]:
    missing = [name for name in record.secrets if name not in os.environ]
    if missing:
        raise UsageError(
            f"{', '.join(missing)} is not set in this shell, and the job needs it.",
            fix="set it, then try again; its value is never kept.",
        )
    return {name: os.environ[name] for name in record.secrets}


def _may_be_asked(context: LaunchContext, record: LaunchRecord) -> bool:
    """Return whether the engine has a request in spite of the error; if nobody knows, it may."""
    try:
        return bool(requests_of(record, context.engine))
    except EngineError:
        return True


def _broke_off(record: LaunchRecord, error: EngineError) -> EngineError:
    return EngineError(
        f"The wait for the machines of {record.run} broke off, and they are still being started or"
        f" run: {error.message}",
        fix=f"follow it with `gpuplan logs -f {record.run}`; `gpuplan down {record.run}` takes it"
        " back.",
    )


def this_process() -> tuple[int, str]:
    """Return what a record keeps of the command that launches: its process and its machine."""
    return os.getpid(), platform.node()
