"""The child process of `batch`: imports torch once, then forks for every request.

A fork costs milliseconds where importing torch costs seconds, and it keeps what one model file does
to the interpreter away from the next one. POSIX only. Requests are lines of JSON on standard input;
an answer is its length as a line, then what `child_main` answers (nothing if it died or was slow).

Run as `python -m gpuplan.profiles.tracing_process.batch_main`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import time
from typing import Any

from . import child_main


def main() -> None:
    """Answer requests until standard input closes."""
    requests, answers = child_main.take_over_standard_streams()
    for name in (
        "trace.trace",
        "user_model.forms.module_class",
        "user_model.forms.deepview",
        "user_model.forms.lightning",
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"..{name}", __package__)
    with contextlib.suppress(ImportError):
        # torch imports it at the first fake tensor, which would be once in every fork.
        importlib.import_module("sympy")
    for line in requests:
        content = _answer_in_fork(json.loads(line))
        answers.write(f"{len(content)}\n".encode() + content)
        answers.flush()


def _answer_in_fork(request: dict[str, Any]) -> bytes:
    """Return the answer of a forked process, or nothing if it died or passed its time limit."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            with os.fdopen(writing, "wb") as stream:
                stream.write(child_main.answer(request))
        finally:
            os._exit(0)
    os.close(writing)
    try:
        return _read_all(reading, time.monotonic() + request["timeout_s"])
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _read_all(pipe: int, deadline_s: float) -> bytes:
    content = bytearray()
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([pipe], [], [], left_s)[0]:
            return b""
        chunk = os.read(pipe, 1 << 20)
        if not chunk:
            return bytes(content)
        content += chunk


if __name__ == "__main__":
    main()
