"""Close a launch whose end was not observed: what became of its machines, and their cost."""

from __future__ import annotations

from datetime import datetime

from ..store.launch_record import LaunchRecord, Outcome
from .context import LaunchContext
from .engine import EngineError, NoCapacityError, NoEngineError
from .machines import advance, cost_of_failed_start, end_unowned, note_machines, tear_down
from .observing.observe import Finding, Observed, rented
from .transitions import end


def close_lost(
    context: LaunchContext, record: LaunchRecord, finding: Finding, seen: Observed
) -> LaunchRecord:
    """Return the launch, ended; machines that are still there are torn down first."""
    if finding == "never-asked":
        return end(context, record, "cancelled", "its command ended before anything was asked for")
    request = seen.request
    if finding == "not-started" and request is not None and request.status == "failed":
        outcome, why = _why_not_started(context, seen)
        if outcome == "no-capacity":
            cost = cost_of_failed_start(
                context, record, no_capacity=True, ended_at=request.ended_at
            )
            return end(context, record, outcome, why, **cost)
    if finding in ("not-started", "gone"):
        record, went = _note_past(context, record, seen)
        if finding == "gone" or went:
            return end(context, record, *_why_gone(record), is_bound=True, **went)
        return end(context, record, *_why_not_started(context, seen))
    if not record.is_open:
        return end_unowned(context, record)
    record = note_machines(context, record)
    tear_down(context, record)
    outcome, why = (
        _why_gone(record) if record.state == "running" else _why_not_started(context, seen)
    )
    return end(context, record, outcome, why)


def _note_past(
    context: LaunchContext, record: LaunchRecord, seen: Observed
) -> tuple[LaunchRecord, dict[str, datetime]]:
    """Record machines that started and ended between two polls; return when they ended.

    Where the engine has no history of them, an attempt that got machines is counted until now, at
    the price of the most expensive place.
    """
    last = record.last
    if last is None or record.managed:
        return record, {}
    # A name is used again when a run is resumed.
    past = [one for one in context.engine.past(record.cluster) if one.ended_at >= last.asked_at]
    got_some = seen.request is not None and seen.request.status == "succeeded"
    if not past:
        if last.began_at is None and got_some:
            dearest = max(place.usd_per_hour for place in record.places) * record.nodes
            facts: dict[str, object] = {"usd_per_hour": dearest, "began_at": last.asked_at}
            record = advance(
                context,
                record,
                lambda one: one.with_last(**facts),
                what="machines that are forgotten",
            )
            return record, {"ended_at": context.now_of(record)}
        return record, {}
    if last.began_at is None:
        facts = rented(record, past[0].cluster)
        record = advance(
            context,
            record,
            lambda one: one.with_last(**facts),
            what=f"machines were in {past[0].cluster.infra}",
        )
    return record, {"ended_at": min(past[0].ended_at, context.now_of(record))}


def _why_gone(record: LaunchRecord) -> tuple[Outcome, str]:
    if record.last is not None and record.last.seen is not None:
        return record.last.seen, "its job was seen to end, and its machines are gone"
    again = f"`gpuplan resume {record.run}` continues from the newest checkpoint"
    if record.fetch is not None:
        again = (
            f"what was not brought to {record.fetch} by then is gone with them; {again} there, and"
            " --outputs keeps results that no command is here to bring"
        )
    if record.last is not None and record.last.spot:
        return "preempted", f"its machines were taken away; {again}"
    return "lost", f"its machines ended before the end of its job was seen; {again}"


def _why_not_started(context: LaunchContext, seen: Observed) -> tuple[Outcome, str]:
    if seen.request is None:
        return "failed", "its machines were not started, and the engine does not say why"
    try:
        context.engine.wait_launched(seen.request.request_id, None)
    except NoCapacityError as error:
        return "no-capacity", error.message
    except NoEngineError:
        raise  # It says nothing of the launch.
    except EngineError as error:
        return "failed", error.message
    return "failed", "its machines are gone, and its job was never seen"
