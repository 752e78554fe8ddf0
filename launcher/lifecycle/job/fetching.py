"""What a job that has ended leaves: results that are on its machines alone, and its run record."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from ....catalog.errors import GpuplanError
from ...store.estimates import StoreError
from ...store.launch_record import LaunchRecord
from ..context import LaunchContext
from ..engine import EngineError, EngineJob, LostMachineError, NoEngineError
from ..machines import advance, with_times

FIRST_PAUSE_S = 3.0
LONGEST_PAUSE_S = 60.0
PATIENCE_S = 600.0
"""So long results are waited for that a connection which broke off holds up, where the user wants
their machines ended now: they cost money meanwhile."""
T = TypeVar("T")


def bring_results(context: LaunchContext, record: LaunchRecord, job: EngineJob) -> bool:
    """Bring the results of a job that has ended into their folder here; return whether it left any.

    A job whose set-up failed has none.

    Raises:
        EngineError: they could not be; it says until when they can.
    """
    assert record.fetch is not None
    try:
        has_any = context.engine.copy_back(record.cluster, record.out_dir, Path(record.fetch))
    except EngineError as error:
        text = _until(context, record, job)
        raise type(error)(f"{error.message} {text}", fix=error.fix) from None
    what = f"results brought to {record.fetch}" if has_any else "it left no results to bring"
    # They are here, and the machines go, even where nothing can be kept: a full disk, for one.
    with contextlib.suppress(StoreError):
        advance(context, record, lambda one: one.with_last(are_results_here=has_any), what=what)
    return has_any


def with_patience(
    bring: Callable[[], T], tell: Callable[[str], None], wait: Callable[[float], None]
) -> T:
    """Return what `bring` does, tried again for ten minutes of pauses while connections break off.

    Args:
        bring: brings results, and does what comes after.
        tell: is told of the first try that failed.
        wait: seconds, between one try and the next.

    Raises:
        LostMachineError: the connection broke off each time.
        NoEngineError: the engine did not answer: at the first try, or at the last.
        EngineError: another try would not help.
    """
    lost: EngineError | None = None
    pause_s, waited_s = FIRST_PAUSE_S, 0.0
    while True:
        try:
            return bring()
        except (LostMachineError, NoEngineError) as error:
            is_first_silence = lost is None and isinstance(error, NoEngineError)
            if is_first_silence or waited_s >= PATIENCE_S:
                raise
            if lost is None:
                minutes = PATIENCE_S / 60
                tell(
                    f"{error.message} That is tried again for {minutes:.0f} minutes; Ctrl-C leaves"
                    " the machines as they are."
                )
            lost = error
        wait(pause_s)
        waited_s += pause_s
        pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)


def keep_measured(context: LaunchContext, record: LaunchRecord, run: Mapping[str, Any]) -> None:
    """Keep what a job measured; that it cannot be kept holds up no machine."""
    try:
        context.keep_run(record, run)
    except GpuplanError as error:
        context.tell(f"what {record.run} measured could not be kept: {error.message}")


def _until(context: LaunchContext, record: LaunchRecord, job: EngineJob) -> str:
    """Return until when the results of a job are on its machines."""
    if record.idle_minutes is None:
        return "They are on its machines alone, and go with them."
    ended_at = with_times(context, record, job).ended_at or context.now_of(record)
    at = (ended_at + timedelta(minutes=record.idle_minutes)).astimezone()
    return (
        f"SkyPilot deletes them with its machines at about {at:%H:%M} on {at:%Y-%m-%d}"
        f" ({record.idle_minutes} minutes after the job)."
    )
