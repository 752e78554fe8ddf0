"""Which parameters train, and how: those of the model that did when the run began, by one step.

Replicas, shards and checkpoints are made for them. What a file trains beside them, or begins to
train later, would be updated on each process apart, or not at all, without a word.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from ....catalog.errors import UserFileError


def forget_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Drop gradients that building the model left, which would be added to those of step 1."""
    for one in parameters:
        one.grad = None


def refuse_foreign(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
    """Refuse an optimizer that trains what is no parameter of the model.

    Args:
        optimizer: of the file.
        parameters: that its `build_optimizer()` was given.

    Raises:
        UserFileError: there is one.
    """
    known = {id(one) for one in parameters}
    for group in optimizer.param_groups:
        for one in group["params"]:
            if id(one) not in known:
                raise UserFileError(
                    "The optimizer of build_optimizer() trains a parameter of the shape"
                    f" {tuple(one.shape)} that is none of the model's: no checkpoint would hold it,"
                    " and every process would train its own.",
                    fix="make it a part of what build_model() returns.",
                )


def refuse_closures(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer whose step computes the loss itself, several times.

    Args:
        optimizer: of the file; one of several parts gives them.

    Raises:
        UserFileError: it is one, as L-BFGS is.
    """
    for one in optimizer if isinstance(optimizer, Iterable) else (optimizer,):
        closure = inspect.signature(type(one).step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise UserFileError(
                f"build_optimizer() gives a {type(one).__name__}, whose step() computes the loss as"
                " often as it likes (a closure); here a step has one gradient.",
                fix="take an optimizer whose step() needs no closure, or your own loop: --command.",
            )


class TrainedParameters:
    """Which parameters of a model asked for gradients when the run began."""

    def __init__(self, model: nn.Module, *, alone: bool) -> None:
        """Note them.

        Args:
            model: as it is spread.
            alone: whether this is the only process: there, one may stop training.
        """
        self._alone = alone
        self._asked = [(name, one, one.requires_grad) for name, one in model.named_parameters()]

    def check(self) -> None:
        """Refuse what changed since.

        Raises:
            UserFileError: a parameter began to train, or stopped on one of several processes.
        """
        for name, one, asked in self._asked:
            if one.requires_grad == asked or (asked and self._alone):
                continue
            did = "stopped" if asked else "began"
            raise UserFileError(
                f"{name} {did} to train (requires_grad) after the run had begun; its optimizer and"
                " its layout are made for what trains from the first step on.",
                fix="let it train from the start with a learning rate of 0 in a group of its own,"
                " which build_scheduler() raises; or run twice, the second time with --weights.",
            )
