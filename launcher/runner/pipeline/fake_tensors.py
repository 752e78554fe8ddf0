"""Other tensors in the place of a model's own, for one recorded run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Keep torch from logging an operation that has no fake form; the recorded run then is real."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@contextmanager
def stand_ins(
    model: nn.Module, make: Callable[[Tensor], Tensor], *, parameters: bool = True
) -> Iterator[None]:
    """Give the modules other tensors, and afterwards all their attributes back."""
    made: dict[int, Tensor] = {}

    def stand_in(tensor: Tensor) -> Tensor:
        if id(tensor) not in made:
            other = make(tensor.detach())
            is_parameter = isinstance(tensor, nn.Parameter)
            made[id(tensor)] = nn.Parameter(other, tensor.requires_grad) if is_parameter else other
        return made[id(tensor)]

    saved = [
        (module, dict(module.__dict__), dict(module._parameters), dict(module._buffers))
        for module in model.modules()
    ]
    try:
        for module, _, own, buffers in saved:
            for name, tensor in own.items():
                if tensor is not None and parameters:
                    setattr(module, name, stand_in(tensor))
            for name, tensor in buffers.items():
                if tensor is not None:
                    module._buffers[name] = stand_in(tensor)
        yield
    finally:
        for module, attributes, own, buffers in saved:
            for name, tensor in own.items():
                # As an attribute: recurrent layers keep a second list of their weights.
                setattr(module, name, tensor)
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
