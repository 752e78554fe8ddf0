"""The folder of a run's checkpoints: whether every process can use it, and what is whole in it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ....catalog.errors import UsageError
from ..processes.processes import Processes
from .safe_reading import CheckpointReader

RUN_FILE = "run.json"
"""The last file of a checkpoint that is written."""
NAME = "step-{:08d}"


def open_folder(folder: Path, processes: Processes, *, in_bucket: bool = False) -> None:
    """Make the folder on every node, and clear what killed runs left half-written in it.

    Nodes share a bucket, but not at once: there is nothing to look at.

    Raises:
        UsageError: it cannot be written, or other nodes do not see what the first one writes.
    """
    problem = agreed(_unwritable(folder), processes)
    if problem is None and processes.nodes > 1 and not in_bucket:
        problem = agreed(_unshared(folder, processes), processes)
    if problem:
        raise UsageError(
            f"Checkpoints cannot be kept in {folder}: {problem}.",
            fix="give a folder that every node can write, with --checkpoint-dir.",
        )
    if processes.is_first:
        for left in folder.glob(".step-*"):
            shutil.rmtree(left, ignore_errors=True)
    processes.barrier()


def whole_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder that are whole, oldest first."""
    return sorted(one.parent for one in folder.glob(f"step-*/{RUN_FILE}") if _has_all(one))


def file_sizes(checkpoint: Path) -> dict[str, int]:
    """Return how many bytes each file of a checkpoint must hold, by what its metadata say."""
    sizes: dict[str, int] = {}
    stored = CheckpointReader(checkpoint).read_metadata().storage_data or {}
    for part in stored.values():
        end = part.offset + part.length
        sizes[part.relative_path] = max(sizes.get(part.relative_path, 0), end)
    return sizes


def _has_all(run_file: Path) -> bool:
    """Return whether every file is there that a checkpoint in a bucket says it has.

    Its last file may have arrived before those that other nodes were still uploading.
    """
    try:
        sizes = json.loads(run_file.read_text(encoding="utf-8")).get("files") or {}
        return all((run_file.parent / name).stat().st_size >= size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def make_durable(folder: Path) -> None:
    """Let what was renamed in a folder survive a crash, where the file system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)


def agreed(problem: str | None, processes: Processes) -> str | None:
    """Return the first problem that any process has, the same on all of them."""
    if processes.world == 1:
        return problem
    problems: list[Any] = [None] * processes.world
    dist.all_gather_object(problems, problem, processes.host_group)
    return next((one for one in problems if one), None)


def _unwritable(folder: Path) -> str | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _unshared(folder: Path, processes: Processes) -> str | None:
    """Return a reason if what the first process writes is not seen here."""
    token: list[Any] = [None]
    if processes.is_first:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".shared-") as probe:
            token[0] = Path(probe.name).name
            dist.broadcast_object_list(token, 0, processes.host_group)
            processes.barrier()
        return None
    dist.broadcast_object_list(token, 0, processes.host_group)
    seen = (folder / str(token[0])).exists()
    processes.barrier()
    return None if seen else "the nodes do not share it"
