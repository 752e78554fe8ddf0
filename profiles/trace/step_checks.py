"""What a step must do to be one of training: its batches grow, its loss reaches parameters.

Each check raises UserFileError, with the name of the file and the way out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ...catalog.errors import UserFileError
from .recorded import RecordedStep


def check_growth(name: str, small: RecordedStep, large: RecordedStep) -> None:
    """Refuse batches that do not grow with their size."""
    if small.batch_bytes and small.batch_bytes == large.batch_bytes:
        raise UserFileError(
            f"{name}: a batch of {small.size} samples is as large as one of "
            f"{large.size}, so make_batch() does not use its batch_size.",
            fix="make batch_size the first dimension of what make_batch() returns; where a step"
            " trains on all there is, as on one graph, let a sample be all of it: batch_size"
            " copies, side by side, and `--global-batch 1`.",
        )


def check_loss(name: str, loss: Any) -> None:
    """Refuse a loss that no step can be made of."""
    if not isinstance(loss, torch.Tensor):
        raise UserFileError(
            f"{name}: compute_loss() returned a {type(loss).__name__}, not a tensor.",
            fix="return the loss as a tensor with one element, for example "
            "F.cross_entropy(model(inputs), targets).",
        )
    if loss.numel() != 1:
        raise UserFileError(
            f"{name}: the loss has shape {list(loss.shape)}; backward() needs one element.",
            fix="reduce it in compute_loss(), for example with .mean().",
        )
    if not loss.requires_grad:
        raise UserFileError(
            f"{name}: the loss depends on no trainable parameter, so there is nothing to train.",
            fix="look for .detach() or torch.no_grad() on the way from the model to the loss.",
        )


def check_gradients(name: str, model: nn.Module) -> None:
    """Refuse a backward pass that reached no parameter."""
    if not any(p.grad is not None for p in model.parameters()):
        raise UserFileError(
            f"{name}: no parameter of the model got a gradient.",
            fix="check that compute_loss() uses the model that it is given.",
        )
