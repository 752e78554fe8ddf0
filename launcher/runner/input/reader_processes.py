"""Processes that load data, out of reach of the signals that end a run.

torchrun sends SIGTERM to the process group of every rank, a terminal SIGINT to that of the command.
The training process ends after its step then, with a checkpoint; a process that loads data would
die at once, and torch's loader raises that in the training process, in the middle of the step.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STOPS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def holding_stops() -> Iterator[None]:
    """Hold back the signals that end a run, also for the processes that are started inside.

    They come to this process at the end; a process that loads data lets them go in `apart()`.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows, which has no process groups either.
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def apart(_worker: int) -> None:
    """Move this process, which loads data, to a process group of its own.

    It ends with its parent, which torch's loader sees to, and with the run, which finds all of its
    processes by a variable of theirs.
    """
    if not hasattr(signal, "pthread_sigmask"):
        return
    with suppress(OSError):
        os.setpgid(0, 0)
    # What came before that was meant for the training process, which has it too.
    for number in signal.sigpending() & set(STOPS):
        signal.sigwait([number])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
