"""Processes of the runner, forked from one that has torch loaded: each starts in milliseconds.

Such a process is what `python -m gpuplan_job JOB-FOLDER` is once torch is imported: it has the
environment that torchrun gives, takes the runner out of the job folder, leads a session of its own
and ends as any such process does. `runner_jobs` starts it so; `torchrun` starts true ones.

As a script this is the process that is forked. Requests are lines of JSON on standard input.
"""

from __future__ import annotations

import _imp
import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

PRELOADED = (
    "torch",
    "torch._dynamo",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.elastic.multiprocessing.errors",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.utils.data",
)
POLL_S = 0.005
COMPILED: dict[bytes, CodeType] = {}
"""What the text of a module compiles to: every job folder holds the same ones, anew."""


class ForkServer:
    """The process that is forked, as the tests see it."""

    def __init__(self, *more: str) -> None:
        """Load modules beside `PRELOADED` for all that is forked."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        atexit.register(self.close)

    def start(self, folder: Path, environment: Mapping[str, str], log: Path) -> int:
        """Start a process that runs a job folder; return its id, which is its group's too."""
        return self._ask(folder=str(folder), environment=dict(environment), log=str(log))

    def wait_for_one(self, processes: Sequence[int], timeout_s: float) -> tuple[int, int] | None:
        """Return the id of a process that ended and its exit code; None if time ran out.

        The exit code of a process that a signal ended is the signal's number, negative.
        """
        found = self._ask(processes=list(processes), timeout_s=timeout_s)
        return None if found is None else (found[0], found[1])

    def _ask(self, **request: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    def close(self) -> None:
        """Let the process end."""
        atexit.unregister(self.close)
        with contextlib.suppress(OSError):
            self._process.communicate(timeout=10)


@cache
def fork_server() -> ForkServer:
    """Return the fork server of this process, started when it is first asked for."""
    return ForkServer()


def main() -> None:
    """Answer requests until standard input closes; in a forked process, run its job."""
    gc.disable()
    for name in (*PRELOADED, *sys.argv[1:]):
        importlib.import_module(name)
    # torch takes its operators apart at the exit, one by one; nobody is there to see it.
    for one in weakref.finalize._registry.values():  # pyright: ignore[reportAttributeAccessIssue]
        one.atexit = False
    gc.freeze()  # No process that is forked looks through them, and so none copies their pages.
    gc.enable()
    running: set[int] = set()
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            request = json.loads(line)
            if "folder" not in request:
                answer = _wait_for_one(request["processes"], request["timeout_s"])
                running -= {answer[0]} if answer else set()
            else:
                _compile(Path(request["folder"]))
                answer = os.fork()
                if not answer:
                    return _run_job(request)
                running.add(answer)
            print(json.dumps(answer), flush=True)
    # The tests were ended themselves: nobody else would end what they started.
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
            os.killpg(process, signal.SIGKILL)
    os._exit(0)


def _compile(folder: Path) -> None:
    """Compile the modules of a job folder that no earlier one held, for all its processes."""
    for file in folder.rglob("*.py"):
        source = file.read_bytes()
        if source not in COMPILED:
            COMPILED[source] = compile(source, str(file), "exec", dont_inherit=True)


class _Loader(SourceFileLoader):
    """Loads a module as ever, but for not compiling again what was compiled before the fork."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        known = COMPILED.get(self.get_data(path))
        if known is None:
            return super().get_code(fullname)
        # As importlib does with a compiled file that was moved.
        _imp._fix_co_filename(known, path)  # pyright: ignore[reportAttributeAccessIssue]
        return known


def _use_compiled(folder: str) -> None:
    """Load what lies in a job folder with `_Loader`."""
    finder_of = FileFinder.path_hook((_Loader, [".py"]))

    def hook(path: str) -> Any:
        if not Path(path).is_relative_to(folder):
            raise ImportError
        return finder_of(path)

    sys.path_hooks.insert(0, hook)


def _run_job(request: dict[str, Any]) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    _use_compiled(request["folder"])
    sys.path.insert(0, request["folder"])
    sys.argv = ["gpuplan_job", request["folder"]]
    runpy.run_module("gpuplan_job", run_name="__main__", alter_sys=True)


def _wait_for_one(processes: list[int], timeout_s: float) -> tuple[int, int] | None:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        for process in processes:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return ended, os.waitstatus_to_exitcode(status)
        time.sleep(POLL_S)
    return None


if __name__ == "__main__":
    main()
