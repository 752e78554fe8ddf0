"""What `gpuplan run` is asked and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...planner.plan.plan import Plan
from ..runner.job import CheckpointPolicy
from ..runner.training_options import TrainingOptions

DEFAULT_STEPS = 100
"""Taken where neither the user nor the plan says how many."""
DEFAULT_TIMEOUT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """How a model is to be trained on this machine; None leaves it to the plan or the machine."""

    nproc: int | None = None
    steps: int | None = None
    out_dir: Path | None = None
    """Where results are written; None makes a new folder below `gpuplan-runs`."""
    micro_batch: int | None = None
    """Only without a plan."""
    seed: int = 0
    device: str | None = None
    """cpu or cuda."""
    workers: int | None = None
    """Processes that load data, per rank."""
    synthetic: bool = False
    clip_grad_norm: float | None = None
    training: TrainingOptions = field(default_factory=TrainingOptions)
    checkpoint: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    master_port: int | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    """How long a process waits for the others in one collective."""
    verbose: bool = False
    """Whether torchrun and every process write to the terminal, not to files."""
    anyway: bool = False
    """Whether a model that this machine surely cannot hold is started all the same."""
    quiet: bool = False
    """Whether what the processes print goes to a file."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A run that ended without an error."""

    folder: Path
    record: dict[str, Any]
    """The run record; also in `record.json` of the folder."""
    plan: Plan | None
    steps: int
    """Asked for."""
    tokens_per_sample: float | None
    checkpoint: Path | None
    """The newest whole one."""
    stopped_by: int | None = None
    """The signal that ended it before its last step."""
    began: bool = True
    """False where there was nothing left to do."""
