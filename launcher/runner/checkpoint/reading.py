"""Reading checkpoints back: the newest that can be used, and why those after it cannot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

from ..numerics import LossScaler, all_finite
from ..processes import Processes
from ..reporting.metrics import say
from .folder import RUN_FILE, agreed

FAILURES = (Exception, dcp.api.CheckpointException)
"""What reading or writing raises: what torch collects of all ranks is no Exception to it."""
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)


@dataclass(frozen=True)
class Resumed:
    """A checkpoint that was read."""

    path: Path
    facts: dict[str, Any]
    """What its `run.json` says of the run."""


def read_first(
    paths: Sequence[Path],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: LossScaler | None,
    processes: Processes,
) -> Resumed | str:
    """Read the first checkpoint that can be used; return it, or why the first one cannot be.

    One that is damaged, or whose weights are not finite, is passed over, and said to be. What it
    has left in the model, the next that is read replaces.

    Args:
        paths: to try, in this order, the same on every process.
        model: as it is spread over the processes.
        optimizer: of its parameters.
        scaler: of the loss, if there is one.
        processes: which all find the same.
    """
    state = state_of(model, optimizer)
    problems: list[str] = []
    for path in paths:
        facts, problem = _facts(path)
        problem = agreed(problem, processes) or _read(path, state, model, optimizer, processes)
        if problem is not None:
            problems.append(problem)
            continue
        if scaler is not None and facts.get("scaler"):
            scaler.load_state_dict(facts["scaler"])
        if processes.is_first:
            for left, why in zip(paths, problems, strict=False):
                say(f"{left.name} cannot be used: {why}; going back to the one before it")
        return Resumed(path, facts)
    return problems[0]


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return what a checkpoint holds, as tensors of this rank under the names of the model."""
    model_state, optimizer_state = get_state_dict(model, optimizer, options=OPTIONS)
    return {"model": model_state, "optimizer": optimizer_state}


def reason(error: BaseException) -> str:
    """Return the first line that says something, of an error that may wrap others."""
    if isinstance(error, dcp.api.CheckpointException):
        inner = next(iter(error.failures.values()), None)
        if inner is not None:
            return reason(inner[0])
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _facts(path: Path) -> tuple[dict[str, Any], str | None]:
    """Return what a checkpoint says of its run, and why that cannot be used, if so."""
    try:
        facts = json.loads((path / RUN_FILE).read_text(encoding="utf-8"))
        return {**facts, "step": int(facts["step"]), "elapsed_s": float(facts["elapsed_s"])}, None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {}, f"{RUN_FILE}: {type(error).__name__}: {reason(error)}"


def _read(
    path: Path,
    state: dict[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    processes: Processes,
) -> str | None:
    """Read a checkpoint into a model; return why it cannot be used, if so, the same everywhere."""
    problem = None
    try:
        dcp.load(  # pyright: ignore[reportPrivateImportUsage]
            state,
            checkpoint_id=path,
            process_group=processes.checkpoint_group,
            no_dist=processes.world == 1,
        )
    # A damaged file fails in whatever way its reader has: a pickle, a zip, a missing key.
    except FAILURES as error:
        problem = reason(error)
    problem = agreed(problem, processes)
    if problem is not None:
        return problem
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
        options=OPTIONS,
    )
    trained = [one for one in model.parameters() if one.requires_grad]
    is_sound = all_finite(trained, processes.device)
    return None if is_sound else "its weights are infinite or no number"
