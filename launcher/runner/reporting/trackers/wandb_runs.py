"""Weights & Biases: offline, below the folder of results, unless WANDB_MODE says otherwise.

`wandb sync` sends it later. WANDB_PROJECT, WANDB_ENTITY and all its other variables hold.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

PROJECT = "gpuplan"
OFFLINE = "offline"


def wandb_opener(folder: Path, facts: Mapping[str, Any]) -> Callable[[str | None], WandbRun]:
    """Return what opens a run in W&B.

    Args:
        folder: of results.
        facts: of the run, shown as its configuration.

    Raises:
        ImportError: the package is not installed.
    """
    # Nothing leaves this machine that nobody asked for.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    wandb = importlib.import_module("wandb")

    def open_run(run_id: str | None) -> WandbRun:
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=os.environ.get("WANDB_NAME", folder.name),
            dir=str(folder),
            id=run_id or uuid4().hex[:8],
            mode=os.environ.get("WANDB_MODE", OFFLINE),
            resume="allow",
            config=dict(facts),
            # What the run prints stays where it is: this is not the only one who reads it.
            settings=wandb.Settings(console="off", silent=True),
        )
        # Not its own counter of steps, which would refuse those that are done again after a crash.
        run.define_metric("*", step_metric="step")
        return WandbRun(run)

    return open_run


class WandbRun:
    """One run of W&B."""

    def __init__(self, run: Any) -> None:
        self._run = run

    @property
    def run_id(self) -> str:
        """Return W&B's own name of it."""
        return str(self._run.id)

    def log(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Add rows of numbers."""
        for row in rows:
            self._run.log({name: value for name, value in row.items() if name != "time"})

    def close(self, *, failed: bool) -> None:
        """Write what is left."""
        self._run.finish(exit_code=int(failed))
