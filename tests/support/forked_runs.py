"""`gpuplan run` of one process with the process forked from one that has torch loaded.

`FORKING` stands for the module `subprocess` in `launcher.process_group`: the command, its job
folder, the runner and what it leaves are as ever, and what it prints comes when it has ended. Tests
of signals, of what is left behind and of several processes take true ones.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from forked_ranks import fork_server


class _Forked:
    """What `run_child` asks of `subprocess.Popen`."""

    def __init__(self, folder: Path, environment: Mapping[str, str], output: int) -> None:
        self._log = folder / "printed"
        self._output = output
        self.returncode: int | None = None
        self.pid = fork_server().start(folder, environment, self._log)

    def wait(self) -> int:
        """Wait for the end and pass on what was printed; return the exit code."""
        while self.returncode is None:
            ended = fork_server().wait_for_one([self.pid], 60.0)
            self.returncode = None if ended is None else ended[1]
        os.write(self._output, self._log.read_bytes())
        return self.returncode


def _start(arguments: Sequence[str], **given: Any) -> Any:
    """Start a program: the runner alone forked, and any other as ever."""
    if list(arguments[1:3]) == ["-m", "gpuplan_job"]:
        return _Forked(Path(arguments[3]), given["env"], given["stderr"])
    return subprocess.Popen(arguments, **given)


FORKING = SimpleNamespace(Popen=_start, DEVNULL=subprocess.DEVNULL)
