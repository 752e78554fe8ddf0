"""Processes that make Profiles, forked from one that has torch loaded: importing it takes seconds.

`Child` starts its process as ever, and is given `_start` for `subprocess.Popen`: a process with
its own environment, folder, standard streams and session, in which the module asked for runs, and
which ends as it likes. Tests of what such a process imports, or of how it starts, take true ones,
and so does what measures.

As a script this is the process that is forked. Requests come by a socket, each a line of JSON with
the three streams of a new process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

TRACING = "gpuplan.profiles.tracing_process.child_main"
COUNTING = "gpuplan.profiles.tracing_process.model_size_main"
MEASURING = "gpuplan.profiles.measure.child_main"
PRELOADED = (
    "sympy",
    "torch.fx.experimental.symbolic_shapes",
    "gpuplan.profiles.trace.trace",
    "gpuplan.profiles.user_model.forms.module_class",
    TRACING,
    COUNTING,
)
MOST_BYTES = 1 << 20


class _ForkServer:
    """The process that is forked, as the tests see it."""

    def __init__(self, *more: str) -> None:
        """Load modules beside `PRELOADED` for all that is forked."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-u", __file__, str(theirs.fileno()), *more],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._one_at_a_time = threading.Lock()
        atexit.register(self.close)

    def ask(self, streams: Sequence[int] = (), **request: Any) -> Any:
        with self._one_at_a_time:
            socket.send_fds(self._socket, [json.dumps(request).encode()], list(streams))
            return json.loads(self._socket.recv(MOST_BYTES))

    def close(self) -> None:
        """Let the process end."""
        atexit.unregister(self.close)
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)


@cache
def _fork_server() -> _ForkServer:
    return _ForkServer()


@contextlib.contextmanager
def forked_with(*modules: str) -> Iterator[None]:
    """Fork processes from one that has modules loaded too: importing them takes seconds."""
    server = _ForkServer(*modules)
    with mock.patch(f"{__name__}._fork_server", lambda: server):
        yield
    server.close()


class Started:
    """What `Child` asks of `subprocess.Popen`."""

    def __init__(self, command: Sequence[str]) -> None:
        reading, asking = os.pipe()
        answers, writing = os.pipe()
        complaints, complaining = os.pipe()
        theirs = (reading, writing, complaining)
        self.pid: int = _fork_server().ask(
            theirs, module=command[-1], folder=os.getcwd(), environment=dict(os.environ)
        )
        for each in theirs:
            os.close(each)
        self.stdin = os.fdopen(asking, "wb")
        self.stdout = os.fdopen(answers, "rb")
        self.stderr = os.fdopen(complaints, "rb")
        self.returncode: int | None = None

    def wait(self) -> int:
        """Wait for the end; return the exit code, or the signal's number, negative."""
        if self.returncode is None:
            self.returncode = _fork_server().ask(process=self.pid)
        assert self.returncode is not None
        return self.returncode


def _start(command: Sequence[str], **streams: Any) -> Any:
    """Start a process: what measures as ever, and what makes a Profile, counts or looks forked."""
    if command[-1] == MEASURING:
        return subprocess.Popen(command, **streams)
    return Started(command)


FORKING = SimpleNamespace(Popen=_start, PIPE=subprocess.PIPE)
"""What stands for the module `subprocess` in `child`."""


def main() -> None:
    """Answer requests until the socket closes; in a forked process, run a module."""
    gc.disable()
    for name in (*PRELOADED, *sys.argv[2:]):
        importlib.import_module(name)
    gc.freeze()  # No process that is forked looks through them, and so none copies their pages.
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as tests:
        while True:
            text, streams, _, _ = socket.recv_fds(tests, MOST_BYTES, 3)
            if not text:
                return
            request = json.loads(text)
            if "process" in request:
                _, status = os.waitpid(request["process"], 0)
                answer = os.waitstatus_to_exitcode(status)
            else:
                answer = os.fork()
                if not answer:
                    tests.close()
                    return _run(request, streams)
                for each in streams:
                    os.close(each)
            tests.send(json.dumps(answer).encode())


def _run(request: dict[str, Any], streams: Sequence[int]) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    importlib.import_module(request["module"]).main()


if __name__ == "__main__":
    main()
