"""The machines of a launch: noted when they are there, and torn down.

Two commands may be about one launch at once, and its cluster has one name in all attempts. So a
command changes only the attempt that it has seen, and tears down machines of no later one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

from ..store.launch_record import Attempt, LaunchRecord
from ..store.launches import OvertakenError
from .context import LaunchContext
from .engine import ENDED, EngineError, EngineJob
from .observing.observe import job_of, rented

Changes = dict[str, Any]
ALL_OR_NONE = ("aws",)
"""Clouds of which SkyPilot 0.14 asks all nodes in one request that gives all of them or none
(sky/provision/aws/instance.py: MinCount is MaxCount). Others give them one by one."""


def advance(
    context: LaunchContext,
    record: LaunchRecord,
    change: Callable[[LaunchRecord], LaunchRecord | None],
    *,
    what: str,
    open_only: bool = False,
) -> LaunchRecord:
    """Change the attempt of a launch that this command has seen, as it stands now.

    Raises:
        OvertakenError: the run was launched again since, or, with `open_only`, it has ended.
    """
    number = None if record.last is None else record.last.number
    return context.ledger.update(record.run, change, what=what, attempt=number, open_only=open_only)


def as_it_stands(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """Return a launch as it is now, while the attempt that this command has seen is the newest.

    Raises:
        OvertakenError: the run was launched again since.
    """
    now = context.ledger.get(record.run)
    if len(now.attempts) != len(record.attempts):
        raise OvertakenError(now)
    return now


def note_machines(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """Keep what machines a launch got, if it has any and that is not known yet."""
    if record.managed:
        return _note_managed(context, record)
    last = record.last
    cluster = context.engine.cluster(record.cluster, refresh=False)
    if cluster is None or last is None or last.began_at is not None:
        return record
    facts = rented(record, cluster)
    return advance(
        context, record, lambda one: _noted(one, facts), what=f"machines in {cluster.infra}"
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


def with_times(context: LaunchContext, record: LaunchRecord, job: EngineJob) -> EngineJob:
    """Return a job that has ended with when it ran, if the engine says so.

    One whose log was followed has none, and without the guard's report nothing else tells how long
    its machines ran where the clock here was set.
    """
    if job.ended_at is not None:
        return job
    try:
        found = newest_job(context, record)
    except EngineError:
        return job
    is_it = found is not None and found.job_id == job.job_id and found.status in ENDED
    return found if found is not None and is_it else job


def tear_down(context: LaunchContext, record: LaunchRecord) -> None:
    """Tear down the machines of a launch, and check that they are gone.

    Raises:
        EngineError: they are still there.
        OvertakenError: the run was launched again since; those of that attempt are left.
    """
    as_it_stands(context, record)
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


def cost_of_failed_start(
    context: LaunchContext,
    record: LaunchRecord,
    *,
    no_capacity: bool,
    ended_at: datetime | None = None,
) -> Changes:
    """Return what an attempt keeps of nodes that came up before its start failed, as at most.

    SkyPilot tears them down itself, and tells of none. Without capacity one node at least was
    missing in every place.

    Args:
        context: the world.
        record: the launch, whose machines are gone.
        no_capacity: whether that is why its start failed.
        ended_at: when it had failed; None: now.
    """
    last = record.last
    if last is None or last.began_at is not None or record.managed:
        return {}
    partial = [one for one in record.places if one.infra.partition("/")[0] not in ALL_OR_NONE]
    places, nodes = (partial, record.nodes - 1) if no_capacity else (record.places, record.nodes)
    usd_per_hour = max((one.usd_per_hour for one in places), default=Decimal(0)) * nodes
    if not usd_per_hour:
        return {}
    if not no_capacity:
        past = [one for one in context.engine.past(record.cluster) if one.ended_at >= last.asked_at]
        if not past:
            return {}
        ended_at = max(one.ended_at for one in past)
    now = context.now_of(record)
    ended_at = max(last.asked_at, min(ended_at or now, now))
    return {
        "usd_per_hour": usd_per_hour,
        "began_at": last.asked_at,
        "ended_at": ended_at,
        "is_bound": True,
    }


def end_unowned(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """Tear down machines of a launch that has ended, and count what they cost.

    They came after it was closed, or never went.

    Raises:
        EngineError: they are still there.
        OvertakenError: the run was launched again since.
    """
    if record.managed:
        job = newest_job(context, as_it_stands(context, record))
        if job is None or job.status in ENDED:
            return record
        context.engine.cancel_managed(job.job_id, gracefully=False)
        return count_unowned(context, record, _facts_of_job(record, job))
    cluster = context.engine.cluster(record.cluster, refresh=False)
    tear_down(context, record)
    if cluster is None or cluster.status == "stopped":
        return record
    return count_unowned(context, record, rented(record, cluster), since=cluster.launched_at)


def count_unowned(
    context: LaunchContext, record: LaunchRecord, facts: Changes, *, since: datetime | None = None
) -> LaunchRecord:
    """Return a launch that has ended with what machines cost that nobody owned until now.

    In its newest attempt, if that had none; else as one more, from its end on. That is at most what
    they cost.

    Args:
        context: the world.
        record: the launch.
        facts: what an attempt keeps of its machines.
        since: from when they can have cost; None: not known.
    """
    now = context.now_of(record)

    def count(one: LaunchRecord) -> LaunchRecord | None:
        last = one.last
        if last is None or last.outcome is None:
            return None
        ended: Changes = {**facts, "ended_at": now, "is_bound": True}
        if last.began_at is None:
            return one.with_last(**{"began_at": last.asked_at, **ended})
        before = last.ended_at or last.began_at
        began_at = before if since is None else max(since, before)
        more = Attempt(
            number=last.number + 1, spot=last.spot, asked_at=began_at, outcome="lost"
        ).model_copy(update={**ended, "began_at": min(began_at, now)})
        return one.model_copy(update={"attempts": (*one.attempts, more)})

    return advance(context, record, count, what="torn down: machines that no open launch owned")


def _note_managed(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    job = newest_job(context, record)
    if job is None:
        return record
    facts = _facts_of_job(record, job)
    return advance(
        context, record, lambda one: _noted(one, facts), what=f"managed job {job.job_id}"
    )


def _noted(record: LaunchRecord, facts: Changes) -> LaunchRecord | None:
    """Return a launch with the machines of its newest attempt; None where that has ended."""
    last = record.last
    return None if last is None or last.outcome is not None else record.with_last(**facts)


def _facts_of_job(record: LaunchRecord, job: EngineJob | None) -> Changes:
    """Return what an attempt keeps of the machines of a managed job; nothing without one."""
    if job is None or record.last is None:
        return {}
    dearest = max(place.usd_per_hour for place in record.places) * record.nodes
    dearest += record.controller_usd_per_hour or Decimal(0)
    return {
        "job_id": job.job_id,
        "infra": job.infra,
        "usd_per_hour": dearest,
        # SkyPilot's own start of a job is when it was submitted, after its machines were set up.
        "began_at": record.last.asked_at,
        "preemptions": job.recoveries,
    }
