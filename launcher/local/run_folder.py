"""The folder of one run on this machine: made ready before it, read back after it.

OUT/job/            the runner with job.json and plan.json (`bundle.py`)
OUT/checkpoints/    step-…, unless another folder was given
OUT/metrics.jsonl   one line a step; record.json when the run has ended
OUT/failure.json    what went wrong, with traceback.txt (`run_outcome.py`)
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...catalog.errors import UsageError
from ...catalog.files import make_private
from ..runner.job import CheckpointPolicy, Job
from ..runner.reporting.failures.failure import FAILURE_FILE

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

RUNS = "gpuplan-runs"
"""Below the folder where the command is run."""
STALE = (".failed", FAILURE_FILE, "traceback.txt", "ended.json", "torchrun.log", "output.txt")
LOCK_FILE = ".lock"
RECORD_FILE = "record.json"
METRICS_FILE = "metrics.jsonl"
STDERR = 2
LAST_LINE_BYTES = 65_536


def make(folder: Path) -> bool:
    """Make the folder of results; those in gpuplan's own folder nobody else reads.

    Returns:
        Whether it is new.

    Raises:
        UsageError: it cannot be made or written.
    """
    try:
        if folder.parent == Path(RUNS).absolute():
            make_private(folder.parent)
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return is_new
    except OSError as error:
        raise UsageError(
            f"Results cannot be written to {folder}: {error.strerror or error}.",
            fix="give a folder that you may write to with --out-dir.",
        ) from None


def unmake(folder: Path) -> None:
    """Remove the folder that was made for a run which did not start, if nothing is in it."""
    with contextlib.suppress(OSError):
        if [one.name for one in folder.iterdir()] == [LOCK_FILE]:
            (folder / LOCK_FILE).unlink()
        folder.rmdir()
        if folder.parent == Path(RUNS).absolute():
            folder.parent.rmdir()


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that can be."""
    shutil.rmtree(folder, ignore_errors=True)


def new_folder(name: str) -> Path:
    """Return the path of a folder of results that does not exist yet."""
    below = Path(RUNS)
    number, path = 1, below / name
    while path.exists():
        number += 1
        path = below / f"{name}-{number}"
    return path


@contextlib.contextmanager
def held(folder: Path) -> Iterator[tuple[int, ...]]:
    """Keep other runs out of a folder; yield the file descriptors that hold it, to hand on.

    Raises:
        UsageError: another run is in it.
    """
    if fcntl is None:
        yield ()
        return
    with (folder / LOCK_FILE).open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"Another run is writing to {shown_path(folder)}.",
                fix="wait until it has ended, or give another --out-dir.",
            ) from None
        except OSError:
            # A file system without locks.
            pass
        yield (stream.fileno(),)


def absolute(policy: CheckpointPolicy, out_dir: Path) -> CheckpointPolicy:
    """Return the policy with absolute folders, as the processes need them.

    A checkpoint to resume from may be named by its path, or by its name in the folder.

    Raises:
        UsageError: there is no such checkpoint.
    """
    folder = None if policy.folder is None else str(Path(policy.folder).expanduser().absolute())
    resume = policy.resume
    if resume not in ("auto", "never"):
        inside = (Path(folder) if folder else out_dir / "checkpoints") / resume
        outside = Path(resume).expanduser().absolute()
        found = next((one for one in (outside, inside) if (one / "run.json").is_file()), None)
        if found is None:
            raise UsageError(
                f"{resume} is not a whole checkpoint.",
                fix=f"give a folder step-… of {inside.parent}, or --resume auto for the newest.",
            )
        resume = str(found)
    return replace(policy, folder=folder, resume=resume)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder that are whole, oldest first."""
    return sorted(one.parent for one in folder.glob("step-*/run.json"))


def already_done(job: Job) -> dict[str, Any] | None:
    """Return the record of a run that has reached its last step before; None if steps are left."""
    newest = checkpoints(job.checkpoints)[-1:]
    if job.checkpoint.resume != "auto" or not newest or step_of(newest[0]) < job.steps:
        return None
    return read_json(job.out_dir / RECORD_FILE) or {"steps": step_of(newest[0])}


def clean(folder: Path) -> None:
    """Remove what an earlier start left behind, so that it is not taken for this one's."""
    for name in STALE:
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "heartbeats", ignore_errors=True)


@contextlib.contextmanager
def apart_from_earlier(job: Job, on_note: Callable[[str], None]) -> Iterator[None]:
    """Move the checkpoints that this run does not follow where they are not taken for its own.

    A run that begins anew beside the checkpoints of a longer one would otherwise lose its own, for
    only the latest steps are kept, and later continue from the other's. If it fails before it has
    written one, they are moved back.
    """
    resume = job.checkpoint.resume
    start = 0 if resume == "never" else step_of(Path(resume))
    others = [one for one in checkpoints(job.checkpoints) if step_of(one) > start]
    if resume == "auto" or not others:
        yield
        return
    kept = len(checkpoints(job.checkpoints)) - len(others)
    place = job.checkpoints / f"before-{job.run_id}"
    place.mkdir()
    for one in others:
        one.rename(place / one.name)
    try:
        yield
    finally:
        if len(checkpoints(job.checkpoints)) == kept:
            for one in others:
                (place / one.name).rename(one)
            place.rmdir()
        else:
            on_note(f"{len(others)} checkpoints of an earlier run are in {place} now.")


@contextlib.contextmanager
def output_of(folder: Path, *, quiet: bool) -> Iterator[int]:
    """Yield the file descriptor for what the processes print: our stderr, or a file if quiet."""
    if not quiet:
        yield STDERR
        return
    with (folder / "output.txt").open("wb") as stream:
        yield stream.fileno()


def tokens_per_sample(folder: Path) -> float | None:
    """Return the tokens of a sample, as the newest line of metrics has them; None if unknown."""
    line = last_metrics(folder) or {}
    tokens, samples = line.get("tokens_per_s"), line.get("samples_per_s")
    return tokens / samples if tokens and samples else None


def last_metrics(folder: Path) -> dict[str, Any] | None:
    """Return the newest whole line of the metrics of a run; None if there is none."""
    try:
        with (folder / METRICS_FILE).open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - LAST_LINE_BYTES))
            lines = stream.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
    return None


def shown_path(path: Path) -> str:
    """Return a path from the current folder where it lies below it, quoted for a shell."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object of a file; None if there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def step_of(checkpoint: Path) -> int:
    """Return the step that a checkpoint was written after; 0 if its name says none."""
    digits = checkpoint.name.removeprefix("step-")
    return int(digits) if digits.isdigit() else 0
