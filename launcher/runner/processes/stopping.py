"""How a run is told to end after the step that runs: by a signal, or by a file that appears.

torchrun kills its processes half a minute after it was told to stop itself, too soon for a large
checkpoint. Whoever wants all of them to end in good order makes the file that GPUPLAN_STOP_FILE
names; the processes agree on it as they do on a signal, write a checkpoint and end well. Each makes
the file of its own node then, whose guard may not have asked: it knows so that steps are left.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

STOP_VARIABLE = "GPUPLAN_STOP_FILE"
SAME_S = 2.0
"""Signals that come so soon after the first are the same wish: launchers pass on what a whole group
was sent already."""


class Stopping:
    """Whether the run is to end."""

    def __init__(
        self,
        variables: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        name = variables.get(STOP_VARIABLE)
        self._file = None if not name else Path(name)
        self._clock = clock
        self._told_at_s: float | None = None
        self._kept: dict[int, Any] = {}

    def is_asked(self) -> bool:
        """Return whether this process was told to stop."""
        return self._told_at_s is not None or (self._file is not None and self._file.exists())

    def pass_on(self, steps_left: int) -> None:
        """Tell the guard of this node that the run was told to stop, which it may not know."""
        if self._file is not None and steps_left > 0:
            with suppress(OSError):
                self._file.touch()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT end the run after this step, and one more end it at once.

        A run that fails is told to end since another has failed, at any moment: SIGTERM is heard on
        then, and `main` ignores it until the failure is written.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            self._kept[number] = signal.signal(number, self._on_signal)
        try:
            yield
        except BaseException:
            signal.signal(signal.SIGINT, self._kept[signal.SIGINT])
            raise
        for number, old in self._kept.items():
            signal.signal(number, old)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        now_s = self._clock()
        if self._told_at_s is None:
            self._told_at_s = now_s
        elif now_s - self._told_at_s > SAME_S:
            signal.signal(number, self._kept[number])
            signal.raise_signal(number)
