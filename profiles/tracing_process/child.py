"""The child process that runs a user's file, which can neither print to us, hang us, nor end us.

This is the parent's side, standard library only; `child_main` is the other. The child reads one
request from its standard input and answers on a private copy of its standard output; what the
user's code prints goes to a pipe of which the parent keeps the last part. When the parent goes
away, however it ends, the child's input closes and the child ends itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from ...catalog.errors import GpuplanError, UserFileError
from ..process_group import end_group
from ..user_model import failures
from ..user_model.spec import ModelSpec
from .child_main import PROGRESS
from .distributed_file import with_distributed_fix

KEPT_OUTPUT_BYTES = 64 * 1024
SHOWN_OUTPUT_LINES = 10
POLL_S = 0.1
SLOW_AFTER_S = 20.0
"""A trace that is at work for so long says why; most are done in 5 seconds."""
FEWER_OPERATIONS = (
    "fewer operations: one batched product in place of a loop over experts (examples/decoder.py"
    " has one); torch.nn.LSTM, a scan or a shorter sequence in place of a loop over time steps"
)
_IS_POSIX = os.name == "posix"


class Child:
    """A child process that makes one Profile; it starts to work at once.

    Args:
        spec: The model.
        numerics: Which numerics classes to trace; None for the file's own.
        optimizer: An optimizer to trace instead of the file's.
        main: The module that the child runs, by its whole name.
        more: What else that module is asked.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        numerics: Sequence[str] | None = None,
        optimizer: str | None = None,
        main: str = f"{__package__}.child_main",
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self._spec = spec
        self._started_s = time.monotonic()
        self._ended = False
        self._last: dict[str, Any] = {}
        self._so_far: dict[str, Any] = {}
        self.traced: set[str] = set()
        """The numerics classes in which a step was recorded."""
        self.traceback = ""
        # -P keeps the current folder off sys.path: a `profiles/` in it must not be taken for ours.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-u", "-m", main],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=_IS_POSIX,
        )
        request = {"spec": spec.to_json(), "numerics": numerics, "optimizer": optimizer}
        request |= more or {}
        self._answer = _Reader(self._process.stdout, keep_bytes=None)
        self._printed = _Reader(self._process.stderr, keep_bytes=KEPT_OUTPUT_BYTES)
        with contextlib.suppress(BrokenPipeError):
            stdin = _open(self._process.stdin)
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()

    def result(
        self,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
        on_slow: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Wait for and return the answer: "files", "packages" and "profile" (JSON text).

        Args:
            on_progress: Is told how far the child is. With every word of it the time limit begins
                anew: a step of many operations (a loop over time steps) takes long and is at work.
            on_slow: Is told once, in words, what makes a trace long that is.

        Raises:
            GpuplanError: what the child reported, or that it took too long or died.
        """
        try:
            self._wait(on_progress, on_slow)
        finally:
            self.kill()
        return self._parsed(self._answer.content())

    def _wait(
        self,
        on_progress: Callable[[dict[str, Any]], None] | None,
        on_slow: Callable[[str], None] | None,
    ) -> None:
        ends_s = self._started_s + self._spec.timeout_s
        done = False
        while not done:
            left_s = max(0.0, ends_s - time.monotonic())
            done = self._answer.wait(min(POLL_S, left_s))
            for line in self._answer.take_lines(PROGRESS):
                news = json.loads(line)
                if "so_far" in news:
                    # Within a step: it is no reason to wait for longer than for any other step.
                    self._so_far = news
                    if on_slow and time.monotonic() >= self._started_s + SLOW_AFTER_S:
                        on_slow(self._why_slow())
                        on_slow = None
                    continue
                ends_s = time.monotonic() + self._spec.timeout_s
                self._last, self._so_far = news, {}
                self.traced.add(self._last.get("numerics", ""))
                if on_progress is not None:
                    on_progress(self._last)
            if not done and time.monotonic() >= ends_s:
                raise self._too_slow()

    def printed(self) -> str:
        """Return the end of what the user's code printed, standard output and error together."""
        return self._printed.content().decode("utf-8", "replace")

    def kill(self) -> None:
        """End the child and all it started; without effect when it has ended."""
        if self._ended:
            return
        self._ended = True
        end_group(self._process)
        self._process.wait()
        self._printed.wait(1.0)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                _open(stream).close()

    def _parsed(self, content: bytes) -> dict[str, Any]:
        header, _, profile = content.partition(b"\n")
        try:
            answer = json.loads(header)
        except ValueError:
            raise self._died() from None
        if "error" in answer:
            self.traceback = answer["traceback"]
            told = with_distributed_fix(failures.from_json(answer["error"]))
            raise self._with_output(told)
        return answer | {"profile": profile.decode()}

    def _why_slow(self) -> str:
        """Return what makes a trace long, and the ways out."""
        return (
            f"{self._spec.path.name} takes long to trace: {self._operations()}, each a kernel of"
            f" its own in training too. To make it faster: {FEWER_OPERATIONS}."
        )

    def _operations(self) -> str:
        """Return how many operations the step has that is traced, and the loop they come from."""
        count = f"its step has {self._so_far['so_far']:,} operations so far"
        if not self._so_far["loop"]:
            return count
        place, share = self._so_far["loop"]
        return f"{count}, {share:.0%} of the forward pass in the loop at {place}"

    def _too_slow(self) -> GpuplanError:
        name, limit = self._spec.path.name, f"{self._spec.timeout_s:g} seconds (the time limit)"
        operations = self._last.get("operations")
        if operations or self._so_far:
            traced = f" a traced step of {operations:,} operations" if operations else ""
            so_far = f": {self._operations()}" if self._so_far else ""
            return self._with_output(
                UserFileError(
                    f"{name} was not done {limit} after{traced}{so_far}."
                    if traced
                    else f"{name} was not done after {limit}{so_far}.",
                    fix=f"give more time with --timeout SECONDS, or {FEWER_OPERATIONS}.",
                )
            )
        return self._with_output(
            UserFileError(
                f"{name} was not done after {limit}.",
                fix="look for an endless loop or a download outside `if __name__ =="
                ' "__main__":`, or give more time with --timeout SECONDS.',
            )
        )

    def _died(self) -> GpuplanError:
        code = self._process.returncode
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        message = f"The process that ran {self._spec.path.name} {how} before it could answer."
        fix = "run the file with python by itself to see why."
        if code == -signal.SIGKILL:
            fix = "it probably ran out of memory: close other programs, or build the model smaller."
        return self._with_output(UserFileError(message, fix=fix))

    def _with_output(self, error: GpuplanError) -> GpuplanError:
        lines = self.printed().strip().splitlines()[-SHOWN_OUTPUT_LINES:]
        if not lines:
            return error
        shown = "\n".join(f"    {line[:200]}" for line in lines)
        message = f"{error.message.rstrip()}\nThe last lines that it printed:\n{shown}"
        return type(error)(message, fix=error.fix)


class _Reader(threading.Thread):
    """Reads a pipe to its end, so that the writer never blocks; keeps all of it, or its end."""

    def __init__(self, stream: IO[bytes] | None, *, keep_bytes: int | None) -> None:
        super().__init__(daemon=True)
        self._stream = _open(stream)
        self._keep_bytes = keep_bytes
        self._content = bytearray()
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(self._stream.fileno(), 1 << 16):
                self._content += chunk
                if self._keep_bytes is not None:
                    del self._content[: -self._keep_bytes]

    def wait(self, timeout_s: float) -> bool:
        """Return whether the pipe was closed within this time."""
        self.join(timeout_s)
        return not self.is_alive()

    def take_lines(self, start: bytes) -> list[bytes]:
        """Remove and return the rest of the first lines that begin so, as far as they came."""
        found = []
        while self._content.startswith(start) and (end := self._content.find(b"\n")) >= 0:
            found.append(bytes(self._content[len(start) : end]))
            del self._content[: end + 1]
        return found

    def content(self) -> bytes:
        """Return what was kept."""
        return bytes(self._content)


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RuntimeError("the child process was started without pipes")
    return stream
