"""Jobs of the runner, as tests start them: a real folder, real processes, one machine.

`run` forks the processes from one that has torch loaded (`forked_ranks`); `run_with_torchrun`
starts them as a person does. Both run the copy of the runner in the job folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from forked_ranks import ForkServer, fork_server

from gpuplan.launcher.bundle import write_job_folder
from gpuplan.launcher.runner.job import CheckpointPolicy, Job, execution_of
from gpuplan.profiles.user_model.spec import parse_model_spec

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 180
PORTS = range(20_000, 32_000)
"""Below those that the system hands out by itself, so that nobody else is given one meanwhile."""


def plan_of(layout: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return what the runner reads of a plan."""
    return {
        "layout": layout or {},
        "precision": "fp32",
        "micro_batch": 2,
        "grad_accum": 1,
        "recompute": "none",
        "compile": False,
        "stack": "torch-eager",
        **fields,
    }


def make_job(
    out_dir: Path,
    model: Path | str,
    *,
    plan: dict[str, Any] | None,
    params: dict[str, Any] | None = None,
    steps: int = 6,
    checkpoint: CheckpointPolicy | None = None,
    timeout_s: float = 60,
    **fields: Any,
) -> Path:
    """Write a job folder inside `out_dir`; return it."""
    job = Job(
        spec=parse_model_spec(str(model), params=params),
        plan=plan,
        execution=None if plan is None else execution_of(plan),
        out_dir=out_dir,
        steps=steps,
        device="cpu",
        checkpoint=checkpoint or CheckpointPolicy(every_s=None),
        timeout_s=timeout_s,
        **fields,
    )
    folder = out_dir / "job"
    write_job_folder(folder, job)
    return folder


def command(folder: Path, processes: int) -> list[str]:
    """Return the line that runs a job folder."""
    entry = ["-m", "gpuplan_job", str(folder)]
    python = interpreter(folder.parent)
    if processes == 1:
        return [python, *entry]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [python, *torchrun, *entry]


def interpreter(folder: Path) -> str:
    """Return this Python by a path without spaces.

    torch's compiler for processors does not quote the folder of its headers.
    """
    if " " not in sys.prefix:
        return sys.executable
    link = folder / "environment"
    if not link.exists():
        link.symlink_to(sys.prefix)
    return str(link / Path(sys.executable).relative_to(sys.prefix))


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which the job folder's package is found.

    torch's compiler works in the rank itself: else each rank starts processes that import torch.
    It uses no vector instructions, for to find out which there are takes it as long as a model, and
    has its kernels compiled as they stand: they are run for a few steps.
    """
    alone = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    alone["TORCHINDUCTOR_VEC_ISA_OK"] = "0"
    alone["AOT_INDUCTOR_DEBUG_COMPILE"] = "1"
    return {**os.environ, "PYTHONPATH": str(folder), **alone}


def run_with_torchrun(folder: Path, processes: int = 1) -> subprocess.CompletedProcess[str]:
    """Run a job folder to its end as a person does; one process needs no torchrun."""
    return subprocess.run(
        command(folder, processes),
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@dataclass
class Ranks:
    """The processes of a job folder that runs."""

    log: Path
    running: list[int] = field(default_factory=list)

    def signal(self, number: int) -> None:
        """Send a signal to every process and to what it started."""
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, number)

    def has_ended(self) -> bool:
        """Return whether a process has ended, whatever the exit code."""
        return self._wait_for_one(0.01) is not None

    def wait(self, timeout_s: float = TIMEOUT_S) -> int:
        """Return the exit code of the first process that failed, else 0.

        When one fails the others are told to end, as torchrun does.
        """
        failed = 0
        deadline_s = time.monotonic() + timeout_s
        while self.running:
            code = self._wait_for_one(deadline_s - time.monotonic())
            if code is None:
                self.signal(signal.SIGKILL)
                raise TimeoutError(f"ranks ran for {timeout_s:g} s: {self.said()[-2000:]}")
            if code and not failed:
                failed = code
                self.signal(signal.SIGTERM)
        return failed

    def said(self) -> str:
        """Return what the processes wrote to standard output and standard error."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def _wait_for_one(self, timeout_s: float) -> int | None:
        found = fork_server().wait_for_one(self.running, max(0.01, timeout_s))
        if found is None:
            return None
        self.running.remove(found[0])
        return found[1]


def start(folder: Path, processes: int = 1) -> Ranks:
    """Start the processes of a job folder, forked; the caller waits for them."""
    ranks = Ranks(log=folder.parent / "ranks.log")
    ranks.log.unlink(missing_ok=True)
    places = _rendezvous() if processes > 1 else {}
    for rank in range(processes):
        own = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0}
        world = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
        given = {name: str(value) for name, value in {**own, **world, **places}.items()}
        found = {**environment(folder), **(given if processes > 1 else {})}
        ranks.running.append(fork_server().start(folder, found, ranks.log))
    return ranks


@contextlib.contextmanager
def forked_with(*modules: str) -> Iterator[None]:
    """Fork processes from one that has modules loaded too: importing them takes seconds."""
    server = ForkServer(*modules)
    with mock.patch(f"{__name__}.fork_server", lambda: server):
        yield
    server.close()


def run(folder: Path, processes: int = 1) -> subprocess.CompletedProcess[str]:
    """Run a job folder to its end in forked processes."""
    ranks = start(folder, processes)
    code = ranks.wait()
    return subprocess.CompletedProcess(
        command(folder, processes), code, stdout="", stderr=ranks.said()
    )


_PORT_NUMBERS = count(os.getpid() * 101)


def _rendezvous() -> Mapping[str, object]:
    for number in _PORT_NUMBERS:
        port = PORTS[number % len(PORTS)]
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    raise AssertionError("count() does not end")


def metrics(out_dir: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics."""
    lines = (out_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def losses(out_dir: Path) -> list[float]:
    """Return the loss of every step, the last word on each step counting."""
    by_step = {line["step"]: line["loss"] for line in metrics(out_dir)}
    return [by_step[step] for step in sorted(by_step)]


def train(
    out_dir: Path,
    model: Path | str,
    processes: int,
    *,
    run: Callable[[Path, int], subprocess.CompletedProcess[str]] = run,
    **fields: Any,
) -> list[float]:
    """Run a job and return its losses; fail with what it said if it failed."""
    done = run(make_job(out_dir, model, **fields), processes)
    assert done.returncode == 0, done.stderr[-3000:]
    return losses(out_dir)
