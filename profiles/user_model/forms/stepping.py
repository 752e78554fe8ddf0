"""Taking apart code that trains by itself: its loss is what it calls backward on.

Needs only the standard library and torch, because the runner carries this file to the instances.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def loss_at_backward(run: Callable[[], Any]) -> torch.Tensor | None:
    """Run until a backward call and return its tensor; None if there was no such call."""
    original = torch.autograd.backward

    def reached(tensors: Any, *_arguments: Any, **_named: Any) -> None:
        raise _LossReached(tensors if isinstance(tensors, torch.Tensor) else tensors[0])

    torch.autograd.backward = reached
    try:
        run()
    except _LossReached as stop:
        return stop.loss
    finally:
        torch.autograd.backward = original
    return None


@contextmanager
def recorded_optimizers(made: list[torch.optim.Optimizer]) -> Iterator[None]:
    """Append every optimizer that is made inside to the list."""
    original = torch.optim.Optimizer.__init__

    def record(self: torch.optim.Optimizer, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        made.append(self)

    torch.optim.Optimizer.__init__ = record
    try:
        yield
    finally:
        torch.optim.Optimizer.__init__ = original


def same_optimizer(
    optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    """Return the optimizer, or one of its kind if it was made for other parameters."""
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    if held <= {id(one) for one in parameters}:
        return optimizer
    takes = inspect.signature(type(optimizer)).parameters
    settings = {key: value for key, value in optimizer.defaults.items() if key in takes}
    return type(optimizer)(parameters, **settings)


class _LossReached(BaseException):
    """Carries the loss out of an iteration when it calls backward."""

    def __init__(self, loss: torch.Tensor) -> None:
        super().__init__()
        self.loss = loss
