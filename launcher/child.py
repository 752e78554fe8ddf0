"""One child process with all that it starts: signals go on to it, and none of it outlives us."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ..catalog.errors import GpuplanError

PASSED_ON = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
PR_SET_PDEATHSIG = 1
"""Linux: the signal that a process gets when its parent ends (prctl(2))."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a child ended."""

    code: int
    """Negative: the number of the signal that ended it."""
    signals: tuple[int, ...]
    """Those that we were sent meanwhile, in their order."""


def run_child(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    mark: tuple[str, str],
    output: int,
    keep_open: Sequence[int] = (),
    on_signal: Callable[[int], None],
) -> Ended:
    """Start a program, wait for it, and return how it ended.

    The first SIGINT, SIGTERM or SIGHUP that we get is passed on to it, as SIGTERM; the next one
    kills it. Whatever still runs when it has ended is killed. Should we be killed ourselves, it
    gets SIGTERM (on Linux).

    Args:
        arguments: the program and its words.
        environment: all variables of it.
        mark: name and value of one more variable, by which every process below it is found again,
            whatever session it moved to.
        output: the file descriptor that its standard output and error go to.
        keep_open: file descriptors that it inherits.
        on_signal: told the number of each signal.

    Raises:
        GpuplanError: it cannot be started.
    """
    return _Child(mark, on_signal).run(arguments, environment, output, keep_open)


class _Child:
    def __init__(self, mark: tuple[str, str], on_signal: Callable[[int], None]) -> None:
        self._mark = mark
        self._tell = on_signal
        self._process: subprocess.Popen[bytes] | None = None
        self._signals: list[int] = []

    def run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: int,
        keep_open: Sequence[int],
    ) -> Ended:
        name, value = self._mark
        with self._handling():
            try:
                self._process = subprocess.Popen(
                    arguments,
                    env={**environment, name: value},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=keep_open,
                    start_new_session=True,
                    preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                )
            except OSError as error:
                raise GpuplanError(
                    f"{arguments[0]} does not start: {error.strerror or error}.",
                    fix="check the limits of this machine on processes and memory.",
                ) from None
            try:
                if self._signals:
                    self._process.terminate()
                code = self._process.wait()
            finally:
                self._kill_all()
        return Ended(code=code, signals=tuple(self._signals))

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)
        if len(self._signals) == 1:
            if self._process is not None:
                self._process.terminate()
        else:
            self._kill_all()
        self._tell(number)

    @contextlib.contextmanager
    def _handling(self) -> Iterator[None]:
        """Pass signals on for a while; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in PASSED_ON}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)

    def _kill_all(self) -> None:
        """Kill the child, its group, and what left the group for a session of its own."""
        if self._process is None:
            return
        # Its number may be another's once it is reaped, but not while its group has members.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in marked_processes(*self._mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def marked_processes(name: str, value: str) -> list[int]:
    """Return the processes that were started with a variable of this value, where /proc tells."""
    wanted = f"{name}={value}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return found


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
