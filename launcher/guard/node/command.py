"""What starts training on this node: started, asked to stop, and ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .patience import within
from .processes import descendants, end_with_parent, marked_processes, signal_group

STOP_VARIABLE = "GPUPLAN_STOP_FILE"
"""Names a file that appears when the command is to stop; gpuplan's runner polls for it."""
TORCHRUN_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
"""Seconds that torchrun gives its processes after SIGTERM, where torch is new enough; else 30."""
NOT_STARTED = 127
MARKED_WITHIN_S = 10.0


class Command:
    """A command with all that it starts."""

    def __init__(self, words: Sequence[str], grace_s: float) -> None:
        self._words = list(words)
        self._grace_s = grace_s
        self._folder = Path(tempfile.mkdtemp(prefix="gpuplan-guard-"))
        self._stop_file = self._folder / "stop"
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False

    def start(self) -> str | None:
        """Start it; return why it does not start, if it does not."""
        try:
            self._process = subprocess.Popen(
                self._words,
                env={
                    TORCHRUN_VARIABLE: str(int(self._grace_s)),
                    **os.environ,
                    STOP_VARIABLE: str(self._stop_file),
                },
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        except OSError as error:
            return f"{self._words[0]} does not start: {error.strerror or error}"
        return None

    def wait(self, seconds: float) -> int | None:
        """Return how it ended (negative: by which signal); None if it goes on."""
        if self._process is None:
            return NOT_STARTED
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def ask_to_stop(self, *, by_file: bool) -> None:
        """Ask it to stop, once.

        By the file alone where gpuplan's runner trains: all processes then write a checkpoint and
        end well, whereas torchrun, once it is told itself, gives them half a minute. Else the
        command gets SIGTERM, and not its group too: launchers pass it on, and a second one means
        "at once".
        """
        self._asked = True
        with contextlib.suppress(OSError):
            self._stop_file.touch()
        if not by_file and self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def was_stopped_elsewhere(self) -> bool:
        """Return whether gpuplan's runner made the stop file itself, as another node's ranks ask.

        Only before its last step, and only where nobody here asked it to stop.
        """
        return not self._asked and self._stop_file.exists()

    def kill(self) -> None:
        """End it and what it started, also what left its group for a session of its own."""
        if self._process is None:
            return
        pid = self._process.pid
        # Once it has ended, its number may be another's, but not while its group has members.
        left = descendants(pid) if self._process.returncode is None else []
        signal_group(pid, signal.SIGKILL)
        _kill_all(left)
        # The variables of a process that hangs in the kernel may never be read.
        within(
            MARKED_WITHIN_S,
            lambda: _kill_all(marked_processes(STOP_VARIABLE, str(self._stop_file))),
        )

    def close(self) -> None:
        """Kill what is left of it, and remove the file."""
        self.kill()
        within(MARKED_WITHIN_S, lambda: shutil.rmtree(self._folder, ignore_errors=True))


def _kill_all(processes: Sequence[int]) -> None:
    for one in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)
