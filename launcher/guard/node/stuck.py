"""Processes that not even SIGKILL ends: the guard notes them, and the timer ends their machine.

A process that waits in the kernel for a device or a disk which does not answer cannot be killed. It
holds the job's log open, so that SkyPilot takes the job to run, and tears nothing down.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FOLDER = "gpuplan-timer"
"""Below the home of a node: of the timer, which may be the only one left to look."""
NAME = "stuck"


def note() -> None:
    """Say to the timer that a run of this machine cannot be ended.

    Raises:
        OSError: it cannot be written.
    """
    path = _path()
    path.parent.mkdir(exist_ok=True)
    path.touch()


def is_noted() -> bool:
    """Return whether a guard has said so since the last set-up."""
    return _path().exists()


def forget() -> None:
    """Begin anew: what was noted is of an earlier job, or of before a reboot."""
    with contextlib.suppress(OSError):
        _path().unlink()


def _path() -> Path:
    return Path(os.path.expanduser("~")) / FOLDER / NAME
