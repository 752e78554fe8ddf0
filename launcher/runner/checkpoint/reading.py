"""Reading checkpoints back: the newest that can be used, and why those after it cannot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp

from ..processes.processes import Processes
from ..reporting.metrics import say
from ..training.numerics import all_finite
from .contents import Contents, read_small
from .digests import is_as_written, why_damaged
from .folder import RUN_FILE, agreed
from .safe_reading import CheckpointReader, load

FAILURES = (Exception, dcp.api.CheckpointException)
"""What reading or writing raises: what torch collects of all ranks is no Exception to it."""


@dataclass(frozen=True)
class Resumed:
    """A checkpoint that was read."""

    path: Path
    facts: dict[str, Any]
    """What its `run.json` says of the run."""
    small: dict[str, Any]
    """Its small state."""


def read_first(paths: Sequence[Path], contents: Contents, processes: Processes) -> Resumed | str:
    """Read the first checkpoint that can be used; return it, or why the first one cannot be.

    One that is damaged, or whose weights are not finite, is passed over, and said to be. What it
    has left in the model, the next that is read replaces.

    Args:
        paths: to try, in this order, the same on every process.
        contents: what is read into, as it is spread over the processes.
        processes: which all find the same.
    """
    problems: list[str] = []
    for path in paths:
        facts, small, problem = _facts(path)
        if problem is None:
            problem = why_damaged(path, facts, part=processes.rank, parts=processes.world)
        problem = agreed(problem, processes) or _read(path, contents, processes)
        if problem is not None:
            problems.append(problem)
            continue
        if contents.scaler is not None and facts.get("scaler"):
            contents.scaler.load_state_dict(facts["scaler"])
        contents.restore_small(small)
        if processes.is_first:
            for left, why in zip(paths, problems, strict=False):
                say(f"{left.name} cannot be used: {why}; going back to the one before it")
        return Resumed(path, facts, small)
    return problems[0]


def reason(error: BaseException) -> str:
    """Return the first line that says something, of an error that may wrap others."""
    if isinstance(error, dcp.api.CheckpointException):
        inner = next(iter(error.failures.values()), None)
        if inner is not None:
            return reason(inner[0])
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _facts(path: Path) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Return what a checkpoint says of its run, its small state, and why it cannot be used."""
    try:
        facts = json.loads((path / RUN_FILE).read_text(encoding="utf-8"))
        known = {"step": int(facts["step"]), "elapsed_s": float(facts["elapsed_s"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {}, {}, f"{RUN_FILE}: {type(error).__name__}: {reason(error)}"
    if not is_as_written(facts):
        return {}, {}, f"{RUN_FILE} is not as it was written: its bytes have changed since"
    try:
        return facts | known, read_small(path), None
    except (OSError, ValueError) as error:
        return {}, {}, reason(error)


def _read(path: Path, contents: Contents, processes: Processes) -> str | None:
    """Read a checkpoint's tensors; return why it cannot be used, if so, the same everywhere."""
    problem, names = None, frozenset[str]()
    try:
        names = frozenset(CheckpointReader(path).read_metadata().state_dict_metadata)
    except FAILURES as error:
        problem = reason(error)
    problem = agreed(problem, processes)
    if problem is not None:
        return problem
    state = contents.room(names)
    # Settings of an optimizer's groups that are newer than the checkpoint stay as they are.
    optimizer = state.pop("optimizer", {})  # None of a stage that is frozen as a whole.
    known = {
        name: value
        for name, value in optimizer.items()
        if name.startswith("state.") or f"optimizer.{name}" in names
    }
    wanted = state | ({"optimizer": known} if known else {})
    lacking = [name for name in wanted.get("own", {}) if f"own.{name}" not in names]
    if agreed(lacking[0] if lacking else None, processes) is not None:
        del wanted["own"]
        if processes.is_first:
            say(f"{path.name} has no extra_state() of this file, which begins anew")
    try:
        load(
            wanted,
            path,
            process_group=processes.checkpoint_group,
            no_dist=processes.world == 1,
        )
    # A damaged file fails in whatever way its reader has: a pickle, a zip, a missing key.
    except FAILURES as error:
        problem = reason(error)
    problem = agreed(problem, processes)
    if problem is not None:
        return problem
    contents.restore(wanted | {"optimizer": optimizer | wanted.get("optimizer", {})})
    trained = [one for one in contents.model.parameters() if one.requires_grad]
    is_sound = all_finite(trained, processes.device)
    return None if is_sound else "its weights are infinite or no number"
