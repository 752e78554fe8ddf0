"""Why machines that the engine does not list may be there all the same.

A launch that is closed while they run is an orphan, and its job is killed or trains twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ...store.launch_record import LaunchRecord
from ..context import LaunchContext
from .observe import Finding, Observed

REMEMBERED = timedelta(days=30)
"""For how long SkyPilot 0.14 lists clusters that are gone."""


@dataclass(frozen=True, kw_only=True)
class Unsure:
    """Why a launch is not closed, and what the user can do about it."""

    text: str
    fix: str
    can_be_closed: bool
    """Whether the user may say that its machines are gone."""


def why_unsure(
    context: LaunchContext, record: LaunchRecord, finding: Finding, seen: Observed
) -> Unsure | None:
    """Return why machines that a finding says are gone, or broken, may still train; or None."""
    if not record.is_open:
        return _still_runs(record, seen)
    if finding not in ("gone", "not-started", "never-asked") or _is_told(context, record, seen):
        return None
    listed = context.listed(record)
    if listed:
        return Unsure(
            text=f"{record.run} has machines that SkyPilot does not know and AWS lists:"
            f" {', '.join(listed)}. It may train, held by its guard and timer",
            fix="ask the SkyPilot that launched it, or end them in the console of AWS and then"
            f" `gpuplan down {record.run}`.",
            can_be_closed=False,
        )
    is_unseen = finding == "gone" and listed is None
    if is_unseen and _is_forgotten(context, record):
        return Unsure(
            text=f"{record.run} had machines, and SkyPilot has forgotten them: they are neither"
            " among its clusters nor among those that are gone. It may train, held by its guard and"
            " timer",
            fix="look in the console of its cloud; where they are gone,"
            f" `gpuplan down {record.run}` closes it.",
            can_be_closed=True,
        )
    return None


def _still_runs(record: LaunchRecord, seen: Observed) -> Unsure | None:
    """Return why machines of a launch that has ended are not torn down without being told to."""
    job, cluster, last = seen.job, seen.cluster, record.last
    runs = seen.job_goes_on
    is_submitted = last is not None and last.job_id is not None
    is_hidden = cluster is not None and (seen.is_silent or cluster.status == "starting")
    if not (runs or (job is None and is_submitted and is_hidden)):
        return None
    return Unsure(
        text=f"{record.run} has ended in the store, and its job {'' if runs else 'may '}still"
        f" run{'s' if runs else ''} on its machines",
        fix=f"`gpuplan down {record.run}` ends them.",
        can_be_closed=True,
    )


def _is_forgotten(context: LaunchContext, record: LaunchRecord) -> bool:
    """Return whether the engine knows nothing of machines that it had, as after its state was lost.

    Machines that went are among those that it lists as gone. Of a managed job its controller knows.
    """
    last = record.last
    if last is None or context.now_of(record) - last.asked_at > REMEMBERED:
        return False
    if record.managed:
        return last.job_id is not None and not _has_controller(context)
    # Records of versions that did not keep whom they asked are closed, as those versions did.
    return last.engine is not None and last.began_at is not None


def _is_told(context: LaunchContext, record: LaunchRecord, seen: Observed) -> bool:
    """Return whether the engine itself says that it had the machines, or failed to start them.

    What its cloud still lists of them is then an orphan, which `reconcile` finds.
    """
    last, request = record.last, seen.request
    if last is None or record.managed:
        return False
    if request is not None and request.status == "failed" and record.state != "running":
        return True
    return any(one.ended_at >= last.asked_at for one in context.engine.past(record.cluster))


def _has_controller(context: LaunchContext) -> bool:
    if context.engine.managed_jobs():
        return True
    return any(one.is_controller for one in context.engine.clusters())
