"""How a run on this machine ended, from what its processes left: a record, or what went wrong."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from ...catalog.errors import GpuplanError
from ..runner.job import Job
from ..runner.reporting.failures.failure import read_failure, write_failure
from .run_folder import RECORD_FILE, checkpoints, read_json, shown_path, step_of

OWN_DEATHS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
"""Signals that end a process for a reason of its own; SIGTERM and SIGABRT often follow others."""
CLOSE_S = 15
"""torchrun kills what does not end within 30 s of the first death: later ones are its own doing."""


def outcome(job: Job, *, code: int, stopped_by: int | None) -> dict[str, Any]:
    """Return the record that the processes left.

    Args:
        job: what was run.
        code: how the child that started them ended, or the only one.
        stopped_by: the signal that we passed on, if any.

    Raises:
        GpuplanError: what went wrong.
        StoppedEarlyError: a signal came before the first step.
    """
    death = _death(job, code)
    failure = read_failure(job.out_dir)
    record = read_json(job.out_dir / RECORD_FILE) or {}
    if record.get("id") == job.run_id:
        return record
    if failure is not None and (death is None or death[1] not in OWN_DEATHS):
        raise failure
    if stopped_by is not None:
        raise StoppedEarlyError(job, stopped_by)
    died = _died(job, death, code)
    # What another process said of it, if any, is about a connection that was lost.
    with contextlib.suppress(OSError):  # A full disk is said by the process that met it.
        write_failure(job.out_dir, died, rank=None if death is None else death[0])
    raise died


class LostProcessError(GpuplanError):
    """A process ended without saying why."""


class StoppedEarlyError(GpuplanError):
    """A signal ended the run before there was anything to record."""

    def __init__(self, job: Job, number: int) -> None:
        super().__init__(
            "The run was ended before it could record anything.",
            fix=f"the same command continues from {_kept(job)}."
            if checkpoints(job.checkpoints)
            else "run the same command again; nothing had been trained.",
        )
        self.exit_code = 128 + number


def _death(job: Job, code: int) -> tuple[int, int] | None:
    """Return (rank, signal number) of the process that a signal ended first; None if none was."""
    if code < 0:
        return 0, -code
    ended = read_json(job.out_dir / "ended.json") or {}
    failures = ended.get("failures") or []
    deaths = [
        (one["rank"], -one["exit_code"])
        for one in failures
        if one["exit_code"] < 0 and one["time"] - failures[0]["time"] < CLOSE_S
    ]
    return min(deaths, key=lambda one: one[1] not in OWN_DEATHS, default=None)


def _died(job: Job, death: tuple[int, int] | None, code: int) -> LostProcessError:
    """Return the error of processes that ended without a word."""
    ended = read_json(job.out_dir / "ended.json") or {}
    if ended.get("agent_error"):
        said = f"The processes could not be started: {ended['agent_error']}."
    elif death is None:
        said = f"{_who(ended)} with exit code {_code(ended, code)} and left no record."
    else:
        rank, number = death
        beat = read_json(job.out_dir / "heartbeats" / f"rank-{rank:05d}") or {}
        after = f" after step {beat['step']:,} or later" if "step" in beat else ""
        said = f"Rank {rank} died (signal {number}, {signal.Signals(number).name}){after}."
    kept = _kept(job)
    again = f"the same command continues from {kept}" if kept else "no checkpoint was written yet"
    why = (
        "; signal 9 is often the system short of memory (`dmesg` says)"
        if death and death[1] == signal.SIGKILL
        else f"; {shown_path(job.out_dir)} holds what the processes printed"
    )
    return LostProcessError(said, fix=f"{again}{why}.")


def _who(ended: dict[str, Any]) -> str:
    failures = ended.get("failures") or []
    return f"Rank {failures[0]['rank']} ended" if failures else "The processes ended"


def _code(ended: dict[str, Any], code: int) -> int:
    failures = ended.get("failures") or []
    return failures[0]["exit_code"] if failures else code


def _kept(job: Job) -> str:
    newest = checkpoints(job.checkpoints)[-1:]
    return f"the checkpoint of step {step_of(newest[0]):,}" if newest else ""
