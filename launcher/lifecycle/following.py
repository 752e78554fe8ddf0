"""Follow an open launch to its end, through connections that break off.

The command that follows may be all that brings results and ends machines: a network that is away
for a while must not end it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TextIO

from ..store.launch_record import LaunchRecord
from .context import LaunchContext
from .engine import EngineError, LostMachineError, NoEngineError
from .observing.elsewhere import ElsewhereError
from .resume import LOOK_EVERY_S, Wait, reconcile_run, show_log
from .transitions import attend, this_process, wait_started

LONGEST_PAUSE_S = 60.0
GIVE_UP_S = 24 * 3600.0
"""So long a log that breaks off is asked for again, a server that does not answer, and results that
cannot be brought as the network is away."""


def follow(
    context: LaunchContext, record: LaunchRecord, *, wait: Wait = time.sleep
) -> LaunchRecord:
    """Follow an open launch until it has ended, showing its log.

    Args:
        context: the world.
        record: the launch.
        wait: seconds, between one try and the next.

    Raises:
        EngineError: results could not be brought, or machines not torn down; or the log broke off,
            or nobody answered, for a day.
        OvertakenError: another command launched it again meanwhile.
    """
    context = replace(context, tell=_once(context.tell))
    # This command has just launched it: there is nothing to find.
    is_new = record.state == "running" and (record.pid, record.host) == this_process()
    pause_s, waited_s = 0.0, 0.0
    lost: EngineError | None = None
    while record.is_open or is_new:
        if waited_s >= GIVE_UP_S:
            raise lost or _broken_off(record)
        if pause_s:
            wait(pause_s)
        waited_s += pause_s
        try:
            record = attend(context, record) if is_new else _looked_at(context, record)
            lost = None
        except NoEngineError as error:
            lost = error
            context.tell(f"{error.message} It is asked again; the job goes on.")
        except LostMachineError as error:
            lost = error
            context.tell(f"{error.message} That is tried again.")
            record = context.ledger.get(record.run)
        if not is_new:  # The first try again is at once.
            pause_s = min(LONGEST_PAUSE_S, max(LOOK_EVERY_S, 2 * pause_s))
        is_new = False
    return record


def show_and_follow(
    context: LaunchContext,
    record: LaunchRecord,
    out: TextIO,
    *,
    lines: int = 0,
    wait: Wait = time.sleep,
) -> LaunchRecord:
    """Write the log of the newest job of a launch, and follow it until it has ended.

    Args:
        context: the world.
        record: the launch.
        out: where the log goes.
        lines: only so many, the last ones of what there is; 0: all.
        wait: as for `follow`.

    Raises:
        EngineError: its machines could not be started, or as for `follow`.
        UsageError: it has no log.
    """
    try:
        show_log(context, record, out, follow=True, lines=lines)
        record, _ = reconcile_run(context, record)
    except ElsewhereError:
        raise
    except EngineError as error:
        record = context.ledger.get(record.run)
        if not record.is_open:
            raise
        context.tell(f"the log broke off: {error.message}")
    return follow(replace(context, log=out), record, wait=wait)


def _looked_at(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """Return a launch after it was brought up to date, and its log shown to its end."""
    record, finding = reconcile_run(context, record)
    if finding == "starting" and record.last is not None and record.last.request_id:
        record = wait_started(context, record)
    return attend(context, record) if record.is_open else record


def _broken_off(record: LaunchRecord) -> EngineError:
    return EngineError(
        f"The log of {record.run} has broken off for a day; its job goes on.",
        fix=f"follow it again with `gpuplan logs -f {record.run}`.",
    )


def _once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Return what tells a text, and not again until it is another one."""
    told: list[str] = []

    def tell_new(text: str) -> None:
        if text in told[-2:]:  # One round says two things at most: how it looks, what broke off.
            return
        told.append(text)
        tell(text)

    return tell_new
