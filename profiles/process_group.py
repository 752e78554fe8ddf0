"""Ends a process that leads a group of its own, with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess


def end_group(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Kill `process` and its group; without effect on one that has ended.

    The group outlives its leader while a process that it started is in it. Where the system refuses
    a signal to a group (EINVAL, seen in a container), the process itself is killed.
    """
    try:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
            return
    except (ProcessLookupError, PermissionError):
        return
    except OSError:
        pass  # Killed by itself below.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process.kill()
