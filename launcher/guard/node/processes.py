"""A process with all that it starts: ended together, and not left behind by whoever started it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Linux: the signal that a process gets when its parent ends (prctl(2))."""


def signal_group(pid: int, number: int) -> None:
    """Send a signal to a process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def descendants(pid: int) -> list[int]:
    """Return the processes below one, where /proc tells."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in brackets, may hold anything; the parent is the second field after it.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def marked_processes(name: str, value: str) -> list[int]:
    """Return the processes that were started with a variable of this value, where /proc tells."""
    wanted = f"{name}={value}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return found


def started_with(*words: str) -> list[int]:
    """Return the processes whose command holds these words, one after the other, by /proc."""
    wanted = [word.encode() for word in words]
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            had = cmdline.read_bytes().split(b"\0")
            if any(had[at : at + len(wanted)] == wanted for at in range(len(had))):
                found.append(int(cmdline.parent.name))
    return found


def has_variable(*names: str) -> bool:
    """Return whether a process was started with one of these variables, where /proc tells."""
    wanted = tuple(f"{name}=".encode() for name in names)
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            had = environ.read_bytes().split(b"\0")
            if any(one.startswith(wanted) for one in had):
                return True
    return False


def is_alive(pid: int) -> str | None:
    """Return when a process was started, in the system's ticks; None where it has ended."""
    try:
        rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # State and start are fields 3 and 22 of proc(5); a zombie has ended.
    return None if rest[0] in ("Z", "X") else rest[19]


def kill(pid: int, number: int) -> None:
    """Send a signal to a process, as root where it is another user's and sudo asks nothing."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            run_within(["sudo", "-n", "kill", f"-{int(number)}", str(pid)], 10.0)


def run_within(
    words: Sequence[str],
    seconds: float,
    *,
    given: bytes = b"",
    variables: Mapping[str, str] | None = None,
    errors: bool = False,
) -> tuple[int, bytes]:
    """Run a command and return how it ended and what it wrote, with its errors if asked.

    One that has not ended in time is killed and left: `subprocess.run` waits for it then, and one
    that hangs in the kernel (nvidia-smi where a GPU has fallen off its bus) never ends.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it did not end in time.
    """
    process = subprocess.Popen(
        list(words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
        env=variables,
    )
    try:
        said, _ = process.communicate(given, timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, said


def end_with_parent() -> None:
    """Let this process get SIGTERM when its parent ends; Linux only, elsewhere nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
