"""The pretrained weights that a run on this machine starts from, checked before it is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..runner.job import Job
from ..runner.training_options import TrainingOptions
from ..runner.weights.files import stored_tensors
from . import run_folder


def with_absolute_weights(training: TrainingOptions) -> TrainingOptions:
    """Return options of training whose weights are named by an absolute path."""
    if training.weights is None:
        return training
    return replace(training, weights=str(Path(training.weights).expanduser().absolute()))


def refuse_unreadable_weights(job: Job) -> None:
    """Refuse weights that cannot be read, where the run begins anew; only headers are read.

    Raises:
        UsageError: there are none, or a file is damaged or a pickle.
    """
    policy = job.checkpoint
    is_continued = policy.resume not in ("auto", "never") or (
        policy.resume == "auto" and bool(run_folder.checkpoints(job.checkpoints))
    )
    if job.training.weights is not None and not is_continued:
        stored_tensors(Path(job.training.weights))
