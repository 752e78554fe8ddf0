"""Whether the command that launched a run still runs on this machine."""

from __future__ import annotations

import os
import platform

from ...guard.node.processes import is_alive as started_at
from ...store.launch_record import LaunchRecord
from ...uptime import uptime

CLOCK_TICKS = "SC_CLK_TCK"
SLACK_S = 1.0
"""Of two readings of one moment; the next process with a number comes much later."""


def is_alive(record: LaunchRecord, *, host: str | None = None) -> bool:
    """Return whether the command that launched a run still runs on this machine.

    A number is given again once its process is gone, and after a restart soon: a process that began
    after the run was asked for is another one.

    Args:
        record: the launch.
        host: the name of this machine, if not its own.
    """
    if record.host != (host or platform.node()) or record.pid == os.getpid():
        return False
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not _is_another(record)


def _is_another(record: LaunchRecord) -> bool:
    """Return whether the process with the number of a launch is known to be another one."""
    asked = None if record.last is None else record.last.asked_uptime
    here = uptime()
    if asked is None or here is None:
        return False
    if asked.boot != here.boot:
        return True
    ticks = started_at(record.pid)
    return ticks is not None and int(ticks) / os.sysconf(CLOCK_TICKS) > asked.s + SLACK_S
