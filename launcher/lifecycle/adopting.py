"""Keep of a launch what the engine has of it and the command that launched it did not keep."""

from __future__ import annotations

from typing import Any

from ..store.launch_record import LaunchRecord
from .context import LaunchContext
from .machines import advance
from .observing.observe import Observed


def adopt(context: LaunchContext, record: LaunchRecord, seen: Observed) -> LaunchRecord:
    """Keep the request and the job of a launch whose command died before it could."""
    last = record.last
    assert last is not None
    changes: dict[str, Any] = {}
    if last.request_id is None and seen.request is not None:
        changes["request_id"] = seen.request.request_id
    if last.job_id is None and seen.job is not None:
        changes["job_id"] = seen.job.job_id
    state = "running" if seen.job is not None else "requested"
    if not changes and record.state == state:
        return record
    if seen.request is None and seen.job is None:
        return record

    def adopted(one: LaunchRecord) -> LaunchRecord | None:
        # Another command may have closed it since this one looked.
        if not one.is_open:
            return None
        return one.with_last(**changes).model_copy(update={"state": state})

    return advance(context, record, adopted, what=f"reconciled: {state}")


def keep_request(context: LaunchContext, record: LaunchRecord, seen: Observed) -> LaunchRecord:
    """Keep the request of a launch that is closed now, so that no later attempt takes it for its.

    Its command may have died, or been refused an answer, before it was kept.
    """
    last, request = record.last, seen.request
    if not record.is_open or last is None or request is None or last.request_id is not None:
        return record
    return advance(
        context,
        record,
        lambda one: one.with_last(request_id=request.request_id),
        what=f"requested as {request.request_id}",
    )
