"""Which part of a step's loss each micro-batch is, where they hold unequal numbers of tokens.

`compute_loss` means over the tokens of its micro-batch. The mean over a step is theirs, each
weighted by its tokens; the plain mean of means is another number where the counts differ, and
another for every number of ranks. `loss_weight(batch)` in the model file says the count:

    def loss_weight(batch):
        return (batch["labels"] != -100).sum()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ....catalog.errors import UserFileError
from ....planner.plan.layout import Layout
from ....profiles.user_model.checks import Batch, described
from ....profiles.user_model.workload import Workload, optional_function

FUNCTION = "loss_weight"
SMALLEST = 1e-30
"""Stands for the total where no micro-batch has a token: the gradient is 0 then."""
Part = Tensor | float


class LossWeights:
    """The parts of a step's loss, by what the user's file says of each micro-batch."""

    def __init__(self, weight: Callable[[Batch], Any], layout: Layout, device: torch.device):
        self._weight = weight
        self._layout = layout
        self._device = device

    def parts(self, batches: Sequence[Batch]) -> list[Part]:
        """Return what each loss of this rank counts; collective.

        The mean over the data ranks, which is what they reduce gradients to, of the sum of a rank's
        losses times their parts is the loss of the step.
        """
        weights = [self.of_batch(batch) for batch in batches]
        total = torch.stack(weights).sum()
        if dist.is_initialized():
            dist.all_reduce(total)
        # Ranks that split layers or stages hold the same batches as others do.
        total /= self._layout.tensor * self._layout.pipeline
        scale = self._layout.data / total.clamp(min=SMALLEST)
        return [weight * scale for weight in weights]

    def of_batch(self, batch: Batch) -> Tensor:
        """Return the number of tokens of a batch.

        Raises:
            UserFileError: what the file gives is no number.
        """
        weight = self._weight(batch)
        if isinstance(weight, int | float):
            weight = torch.tensor(float(weight))
        if not isinstance(weight, Tensor) or weight.numel() != 1:
            raise UserFileError(
                f"{FUNCTION}() returned {described(weight)}, not the number of tokens of a batch.",
                fix='return one number, such as (batch["labels"] != -100).sum().',
            )
        return weight.detach().reshape(()).to(self._device, torch.float64)


def loss_weights(workload: Workload, layout: Layout, device: torch.device) -> LossWeights | None:
    """Return the weights of a file that has `loss_weight()`; None where all losses count alike."""
    function = optional_function(workload, FUNCTION)
    if function is None:
        return None
    as_given: Callable[[Batch], Any] | None = getattr(workload.make_batch, "as_given", None)
    if as_given is None:
        return LossWeights(function, layout, device)
    return LossWeights(lambda batch: function(as_given(batch)), layout, device)
