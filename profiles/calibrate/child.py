"""The parent's side of the measuring process: what it says arrives while it measures.

Standard library only. The process may crash or hang on a kernel: the next one goes on behind it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ...catalog.errors import GpuplanError, UsageError
from ..process_group import end_group
from .schedule import Point

START_WITHIN_S = 180.0
_KEPT_LINES = 8


class MeasuringChild:
    """One process that measures points in order.

    Args:
        device: "cuda" or "cpu".
    """

    def __init__(self, device: str) -> None:
        self._device = device
        # -P keeps the current folder off sys.path: a `profiles/` in it must not be taken for ours.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-u", "-m", f"{__package__}.child_main", device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Ctrl-C is for the parent, which still has a file to write.
            start_new_session=os.name == "posix",
        )
        self._said: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._printed: list[str] = []
        threading.Thread(target=self._read_answers, daemon=True).start()
        threading.Thread(target=self._read_errors, daemon=True).start()

    def facts(self) -> dict[str, Any]:
        """Return what the device is.

        Raises:
            UsageError: There is no such device.
            GpuplanError: The process did not start.
        """
        said = self.next(START_WITHIN_S)
        if said is not None and "facts" in said:
            return said["facts"]
        if said is not None and "error" in said:
            raise UsageError(
                f"Nothing can be measured on {self._device}: {said['error']}.",
                fix="check the driver and the torch build, or try --device cpu.",
            )
        last = "\n".join(f"    {line}" for line in self._printed[-_KEPT_LINES:])
        raise GpuplanError(f"The measuring process did not start.\n{last}".rstrip())

    def send(self, points: Sequence[Point]) -> None:
        """Have these points measured."""
        assert self._process.stdin is not None
        line = json.dumps([point.to_json() for point in points]) + "\n"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        """Return what it says next; None if it ended.

        Raises:
            TimeoutError: It says nothing for this long.
        """
        try:
            return self._said.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise TimeoutError from None

    def kill(self) -> None:
        """End it and all that it started."""
        end_group(self._process)
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                with contextlib.suppress(ValueError):
                    self._said.put(json.loads(line))
        self._said.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self._printed.append(line.decode("utf-8", "replace").rstrip())
                del self._printed[:-_KEPT_LINES]
