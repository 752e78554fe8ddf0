"""What a model makes while it trains, for a person to look at: `sample(model, folder)` of the file.

    samples/step-00000500/   what it wrote after so many steps

Every process calls it, since the model may be split over all of them; only the first has a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ....catalog.errors import UsageError
from ....profiles.user_model.workload import Workload, bound_function
from ..build import Trainer
from ..input.samples import seed_everything
from ..job import Job
from ..processes.processes import Processes
from ..training.step import WholeModel
from ..training_options import samples_of_stages
from .evaluation import at_rest

FUNCTION = "sample"
FOLDER = "samples"


class Sampling:
    """Calls the file's `sample()` every so many steps."""

    def __init__(
        self, job: Job, workload: Workload, trainer: Trainer, processes: Processes
    ) -> None:
        """Look for the function, if it is asked for.

        Raises:
            UsageError: there is none, or the layout cannot run the whole model.
        """
        self._job = job
        self._trainer = trainer
        self._is_first = processes.is_first
        self._every = job.training.sample_every_steps
        self._sample = None if self._every is None else _function(workload, trainer)

    def is_due(self, step: int) -> bool:
        """Return whether to sample after so many steps."""
        return self._every is not None and (step % self._every == 0 or step == self._job.steps)

    def is_left(self, step: int) -> bool:
        """Return whether a run that ends before its last step, after this one, is to sample yet."""
        return self._every is not None and not self.is_due(step)

    def run(self, step: int) -> None:
        """Call it; the same step of a run that was continued draws the same random numbers."""
        sample = self._sample
        assert sample is not None
        folder: Path | None = None
        if self._is_first:
            folder = self._job.out_dir / FOLDER / f"step-{step:08d}"
            folder.mkdir(parents=True, exist_ok=True)
        seed_everything(self._job.seed * 1_000_003 + step)
        with at_rest(self._trainer) as wrapped, torch.no_grad():
            wrapped.measured((), lambda model, _: sample(model, folder))


def _function(workload: Workload, trainer: Trainer) -> Callable[..., Any]:
    found = bound_function(workload, FUNCTION, reserved=2)
    if found is None:
        raise UsageError(
            f"--sample-every is given, and {workload.name} has no {FUNCTION}().",
            fix=f"write {FUNCTION}(model, folder) (docs/model-file.md), or leave it out.",
        )
    if not isinstance(trainer.step.gradients, WholeModel):
        raise samples_of_stages()
    return found
