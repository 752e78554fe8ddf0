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
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from ...catalog.errors import GpuplanError, UsageError
from ..store.launch_record import Attempt, LaunchRecord, Outcome
from ..store.launches import Ledger
from ..store.spending_limits import SpendingLimits
from ..task_file import label_task
from .engine import ENDED, Engine, EngineError, EngineJob, NoCapacityError
from .guard_report import (
    GuardReport,
    command_usd,
    lacks_results,
    managed_usd,
    run_in_log,
    word_in_log,
)
from .job_log import Copied, keep_log
from .observe import goes_on, job_of, rented, requests_of

Changes = dict[str, Any]
WriteOrders = Callable[[LaunchRecord, datetime], None]
"""Write the guard's orders into the job folder, with what was spent before and the time now."""

KeepRun = Callable[[LaunchRecord, Mapping[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class LaunchContext:
    """What a step needs: the store, the engine, clocks and output."""

    ledger: Ledger
    engine: Engine
    now: Callable[[], datetime]
    """UTC."""
    tell: Callable[[str], None]
    """Called with messages for the user."""
    write_orders: WriteOrders
    keep_run: KeepRun = lambda _record, _run: None
    """Called with the run record of a job that has left one."""
    while_starting: Callable[[LaunchRecord], AbstractContextManager[object]] = lambda _record: (
        nullcontext()
    )
    """Held while a launch waits for its machines, and left once they are there."""
    log: TextIO | None = None
    """Where the engine's own log and the job's go; None: nowhere."""


def begin(
    context: LaunchContext, record: LaunchRecord, limits: SpendingLimits, *, spot: bool
) -> LaunchRecord:
    """Keep a launch before anything is asked for.

    Raises:
        LimitError: its worst case would pass a limit; nothing is kept.
    """
    attempt = Attempt(number=1, spot=spot, asked_at=context.now())
    record = record.model_copy(update={"attempts": (attempt,)})
    context.ledger.reserve(record, limits)
    return record


def ask(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """Ask the engine for the machines of the newest attempt.

    Raises:
        UsageError: a secret is not set, or the folder of the launch is gone.
        EngineError: the engine refused; the launch has ended and cost nothing.
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
        context.write_orders(record, context.now())
        launch = context.engine.launch_managed if record.managed else context.engine.launch
        is_sent = True
        request_id = launch(task, record.cluster, secrets)
    except (GpuplanError, OSError) as error:
        if is_sent and _may_be_asked(context, record):
            raise
        end(context, record, "cancelled", f"nothing was asked for: {_first_line(error)}")
        raise
    return context.ledger.update(
        record.run,
        lambda one: one.with_last(request_id=request_id).model_copy(update={"state": "requested"}),
        what=f"requested as {request_id}",
    )


def wait_started(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """Wait until the machines are there and the job is submitted.

    Raises:
        NoCapacityError: there are none; the launch has ended and cost nothing.
        EngineError: they could not be started, and what was started is torn down; or the wait
            broke off, and the launch is still open.
    """
    last = record.last
    assert last is not None and last.request_id is not None
    wait = context.engine.wait_managed if record.managed else context.engine.wait_launched
    try:
        with context.while_starting(record):
            job_id = wait(last.request_id, context.log)
    except NoCapacityError as error:
        tear_down(context, record)
        end(context, record, "no-capacity", error.message)
        raise
    except EngineError as error:
        # A connection that is lost, as of a laptop that sleeps, ends nothing in the engine.
        if goes_on(record, context.engine):
            raise _broke_off(record, error) from None
        record = note_machines(context, record)
        tear_down(context, record)
        end(context, record, "failed", error.message, trained=False)
        raise
    record = note_machines(context, record)
    return context.ledger.update(
        record.run,
        lambda one: one.with_last(job_id=job_id).model_copy(update={"state": "running"}),
        what=f"job {job_id} submitted",
    )


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
        context.engine.tail_managed(last.job_id, context.log or io.StringIO(), follow=True)
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


def settle(
    context: LaunchContext, record: LaunchRecord, job: EngineJob, *, followed: str = ""
) -> LaunchRecord:
    """Fetch the results of a job that has ended, tear down its machines, and record the cost.

    Args:
        context: the world.
        record: the launch.
        job: its newest, which has ended.
        followed: its log as it was shown; it is asked for again where its end is not in it.
    """
    log = keep_log(
        context.engine, record, job, followed if word_in_log(followed) is not None else None
    )
    word, run = word_in_log(log), run_in_log(log)
    if run is not None:
        context.keep_run(record, run)
    if record.fetch is not None:
        context.engine.copy_back(record.cluster, record.out_dir, Path(record.fetch))
        context.ledger.update(
            record.run, lambda one: one, what=f"results brought to {record.fetch}"
        )
    tear_down(context, record)
    outcome, why = _outcome(job, word)
    if lacks_results(log):
        outcome = "failed" if outcome == "succeeded" else outcome
        why += (
            " Its last results did not all arrive in their bucket;"
            f" `gpuplan resume {record.run}` goes on from the newest checkpoint that did."
        )
    record = context.ledger.update(
        record.run,
        lambda one: one.model_copy(update={"guard_why": None if word is None else word.why}),
        what=f"job {job.job_id} {job.status}",
    )
    return end(
        context,
        record,
        outcome,
        why,
        guard_why=None if word is None else word.why,
        trained=_trained(record, log, word),
        command_usd=command_usd(record, job, word),
        **_managed_times(context, record, job, word),
    )


def tear_down(context: LaunchContext, record: LaunchRecord) -> None:
    """Tear down the machines of a launch, and check that they are gone.

    Raises:
        EngineError: they are still there.
    """
    if record.managed:
        last = record.last
        if last is not None and last.job_id is not None:
            job = newest_job(context, record)
            if job is not None and job.status not in ENDED:
                context.engine.cancel_managed(last.job_id, gracefully=False)
        return
    context.engine.down(record.cluster)
    if context.engine.cluster(record.cluster) is not None:
        raise EngineError(
            f"The machines of {record.run} are still there after they were torn down.",
            fix=f"try again with `gpuplan down {record.run}`, then look with `gpuplan reconcile`.",
        )


def end(
    context: LaunchContext,
    record: LaunchRecord,
    outcome: Outcome,
    why: str,
    *,
    is_bound: bool = False,
    **changes: Any,
) -> LaunchRecord:
    """Close a launch: its actual cost replaces its reservation."""

    def close(one: LaunchRecord) -> LaunchRecord:
        last = one.last
        if last is not None and last.outcome is None:
            ended_at = context.now() if last.began_at is not None else None
            one = one.with_last(
                **{"ended_at": ended_at, "outcome": outcome, "is_bound": is_bound, **changes}
            )
        return one.model_copy(update={"state": "ended", "outcome": outcome, "why": why})

    return context.ledger.update(record.run, close, what=f"ended: {outcome}: {why}")


def note_machines(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """Keep what machines a launch got, if it has any and that is not known yet."""
    if record.managed:
        return _note_managed(context, record)
    last = record.last
    cluster = context.engine.cluster(record.cluster, refresh=False)
    if cluster is None or last is None or last.began_at is not None:
        return record
    facts = rented(record, cluster)
    return context.ledger.update(
        record.run, lambda one: one.with_last(**facts), what=f"machines in {cluster.infra}"
    )


def newest_job(context: LaunchContext, record: LaunchRecord) -> EngineJob | None:
    """Return the job of the newest attempt, as the engine has it."""
    if record.managed:
        jobs = context.engine.managed_jobs()
    else:
        cluster = context.engine.cluster(record.cluster, refresh=False)
        is_up = cluster is not None and cluster.status == "up"
        jobs = context.engine.jobs(record.cluster) if is_up else []
    return job_of(record, jobs)


def _note_managed(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    last, job = record.last, newest_job(context, record)
    if last is None or job is None:
        return record
    dearest = max(place.usd_per_hour for place in record.places) * record.nodes
    facts: Changes = {
        "job_id": job.job_id,
        "infra": job.infra,
        "usd_per_hour": dearest,
        "began_at": job.started_at or last.asked_at,
        "preemptions": job.recoveries,
    }
    return context.ledger.update(
        record.run, lambda one: one.with_last(**facts), what=f"managed job {job.job_id}"
    )


def _managed_times(
    context: LaunchContext, record: LaunchRecord, job: EngineJob, word: GuardReport | None
) -> Changes:
    """Return what an attempt keeps of a job that the engine recovered by itself.

    Between two of its machines nothing is paid: the guard counts what was paid, and without its
    report the dollars are an upper bound.
    """
    if not record.managed:
        return {}
    counted_usd = managed_usd(record, job, word, now=context.now())
    return {
        "ended_at": job.ended_at,
        "preemptions": job.recoveries,
        "is_bound": counted_usd is None,
        "counted_usd": counted_usd,
    }


def _trained(record: LaunchRecord, log: str, word: GuardReport | None) -> bool | None:
    """Return whether an attempt did a step; None of a script of one's own, or without its log.

    A job whose log has no word of the guard ended in its set-up, which runs before it.
    """
    if record.workload is None or not log:
        return None
    return word is not None and bool(word.step)


def _outcome(job: EngineJob, word: GuardReport | None) -> tuple[Outcome, str]:
    if word is not None:
        return word.outcome, word.text
    if job.status == "succeeded":
        return "succeeded", "the job ended well"
    if job.status == "cancelled":
        return "stopped", "the job was cancelled"
    return "failed", job.why or "the job failed; see its log with `gpuplan logs`"


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


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def this_process() -> tuple[int, str]:
    """Return what a record keeps of the command that launches: its process and its machine."""
    return os.getpid(), platform.node()
