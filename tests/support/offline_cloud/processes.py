"""Processes as /proc shows them, and a command that was begun inside a cloud."""

import os
import signal
import subprocess
from pathlib import Path


class Inside:
    """A command that was begun inside a cloud."""

    def __init__(self, entered: subprocess.Popen[bytes], log: Path) -> None:
        """Hold nsenter, which leads a process group and whose child the command is."""
        self._entered = entered
        self._log = log

    @property
    def said(self) -> str:
        """Return what it has written by now."""
        return self._log.read_text(errors="replace")

    def interrupt(self) -> None:
        """Do what Ctrl-C does: SIGINT to it and to what it runs in the foreground."""
        for process in group(self._entered.pid):
            os.kill(process, signal.SIGINT)

    def kill(self) -> None:
        """Kill the command itself, as `kill -9` does."""
        (command,) = read(children(self._entered.pid)).split()
        os.kill(int(command), signal.SIGKILL)

    def wait(self, timeout_s: float) -> int:
        """Return its exit status; negative where a signal ended it."""
        return self._entered.wait(timeout_s)

    def ended(self) -> bool:
        """Return whether it has ended."""
        return self._entered.poll() is not None


def born(process: int) -> str | None:
    """Return when a process was started, so that a number used again is not taken for it."""
    fields = _fields(Path(f"/proc/{process}/stat"))
    return fields[19] if fields and fields[0] != "Z" else None


def children(process: int) -> Path:
    """Return the file that lists a process's children."""
    return Path(f"/proc/{process}/task/{process}/children")


def group(leader: int) -> list[int]:
    """Return the processes of a process group but for its leader."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        fields = _fields(stat)
        if fields and int(fields[2]) == leader:
            found.append(int(stat.parent.name))
    return [process for process in found if process != leader]


def read(path: Path) -> str:
    """Return what a file holds; nothing where it is not there."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _fields(stat: Path) -> list[str]:
    # The name comes first, in parentheses, and may hold anything.
    return read(stat).rpartition(")")[2].split()
