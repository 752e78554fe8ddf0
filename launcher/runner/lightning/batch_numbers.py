"""The number of a batch, which a LightningModule's `training_step` may ask for.

A Trainer counts the batches of an epoch on each process, those that are accumulated too.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch import nn

from ....profiles.user_model.workload import Workload
from ..training.step import Gradients, WholeModel
from .validation import is_lightning

STEP = "training_step"


class BatchNumbers:
    """Gives `training_step` the number of its batch; nothing to any other model."""

    def __init__(
        self, workload: Workload, model: nn.Module, gradients: Gradients, grad_accum: int
    ) -> None:
        self._begin = 0
        self._grad_accum = grad_accum
        step = getattr(model, STEP, None)
        if not is_lightning(workload, model) or not callable(step):
            return
        if not isinstance(gradients, WholeModel) or len(inspect.signature(step).parameters) < 2:
            return

        @functools.wraps(step)
        def numbered(batch: Any, _number: int, *others: Any) -> Any:
            return step(batch, self._begin + gradients.number, *others)

        object.__setattr__(model, STEP, numbered)

    def begin(self, place: int, steps_per_epoch: int | None) -> None:
        """Tell which step comes.

        Args:
            place: whose samples it takes, counted from 0 over the run.
            steps_per_epoch: None where there are no epochs, or nobody knows their length.
        """
        step = place % steps_per_epoch if steps_per_epoch else place
        self._begin = step * self._grad_accum
