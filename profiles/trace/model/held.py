"""The storages that are there before a step and after it, told to the recorder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..gpu.sparse import is_sparse
from ..on_device import tensors_of
from ..recording import storages as rec
from ..recording.recorder import Recorder
from ..torch_private import no_torch_function
from .building import Built


@contextmanager
def gradients_noted(recorder: Recorder, model: nn.Module) -> Iterator[None]:
    """Note each gradient of a parameter once it is there."""

    def note(parameter: torch.Tensor) -> None:
        with no_torch_function():
            if parameter.grad is not None and is_sparse(parameter.grad):
                return  # It grows with the batch, as temporaries do.
            recorder.hold(parameter.grad, rec.GRADIENTS)

    handles = [
        p.register_post_accumulate_grad_hook(note) for p in model.parameters() if p.requires_grad
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def hold(recorder: Recorder, built: Built, batch: Any) -> None:
    """Note the model, what its optimizer keeps, and the batch."""
    with no_torch_function():
        for parameter in built.model.parameters():
            recorder.hold(parameter, rec.PARAMETERS)
        for buffer in built.model.buffers():
            recorder.hold(buffer, rec.BUFFERS)
        for state in built.optimizer_state():
            recorder.hold(state, rec.OPTIMIZER)
        for tensor in tensors_of(batch):
            recorder.hold(tensor, rec.INPUTS)
