"""One child process with all that it starts: signals go on to it, and none of it outlives us."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ..catalog.errors import GpuplanError
from .guard.node.processes import descendants, end_with_parent, marked_processes, signal_group

PASSED_ON = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class NotStartedError(GpuplanError):
    """A program could not be started."""


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
    cwd: Path | None = None,
    mark: tuple[str, str] | None = None,
    output: int | None = None,
    keep_open: Sequence[int] = (),
    grace_s: float | None = None,
    on_signal: Callable[[int], None] | None = None,
) -> Ended:
    """Start a program, wait for it, and return how it ended.

    The first SIGINT, SIGTERM or SIGHUP that we get is passed on to it, as SIGTERM; the next one
    kills it. With `grace_s`, every one goes as it is to its whole process group, and the kill
    comes by the clock. Whatever of it still runs when it has ended is killed. Should we be killed
    ourselves, it gets SIGTERM (on Linux).

    Args:
        arguments: the program and its words.
        environment: all variables of it.
        cwd: where it runs; here where it is None.
        mark: name and value of one more variable, by which every process below it is found again,
            whatever session it moved to, even when those between have ended.
        output: the file descriptor that its standard output and error go to, with nothing as its
            standard input; None: it shares all three of ours.
        keep_open: file descriptors that it inherits.
        grace_s: seconds from the first signal to the kill; None: the second signal kills.
        on_signal: told the number of each signal.

    Raises:
        NotStartedError: it cannot be started.
    """
    child = _Child(mark, grace_s, on_signal)

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            arguments,
            cwd=cwd,
            env={**environment, **dict([mark] if mark else [])},
            stdin=None if output is None else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=keep_open,
            start_new_session=True,
            preexec_fn=end_with_parent if os.name == "posix" else None,
        )

    return child.run(arguments[0], start)


class _Child:
    def __init__(
        self,
        mark: tuple[str, str] | None,
        grace_s: float | None,
        on_signal: Callable[[int], None] | None,
    ) -> None:
        self._mark = mark
        self._tell = on_signal
        self._process: subprocess.Popen[bytes] | None = None
        self._signals: list[int] = []
        self._kill_later: threading.Timer | None = None
        if grace_s is not None:
            self._kill_later = threading.Timer(grace_s, self._kill_all)
            self._kill_later.daemon = True

    def run(self, name: str, start: Callable[[], subprocess.Popen[bytes]]) -> Ended:
        with self._handling():
            try:
                self._process = start()
            except OSError as error:
                raise NotStartedError(
                    f"{name} does not start: {error.strerror or error}.",
                    fix="check the limits of this machine on processes and memory.",
                ) from None
            try:
                # What came before there was a process to hear it.
                for number in tuple(self._signals):
                    self._pass_on(number)
                code = self._process.wait()
            finally:
                if self._kill_later is not None:
                    self._kill_later.cancel()
                self._kill_all()
        return Ended(code=code, signals=tuple(self._signals))

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)
        is_first = len(self._signals) == 1
        if is_first and self._kill_later is not None:
            self._kill_later.start()
        if is_first or self._kill_later is not None:
            self._pass_on(number)
        else:
            self._kill_all()
        if self._tell is not None:
            self._tell(number)

    def _pass_on(self, number: int) -> None:
        if self._process is None:
            return
        if self._kill_later is None:
            self._process.terminate()
        else:
            signal_group(self._process.pid, number)

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
        pid = self._process.pid
        # Once it has ended, its number may be another's, but not while its group has members.
        left = descendants(pid) if self._process.returncode is None else []
        signal_group(pid, signal.SIGKILL)
        for one in (*left, *(marked_processes(*self._mark) if self._mark else ())):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
