"""What tracing leaves: the model as it was built, and each step that was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ..profile import BatchTensor
from ..user_model.blocks import BlockRun
from .recorder import Recorder


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """What the file turned out to do while it ran."""

    autocast: torch.dtype | None
    """The dtype that it casts to itself."""
    compiles: bool
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass
class RecordedStep:
    """What one recorded step left."""

    size: int
    recorder: Recorder
    batch_bytes: int
    batch_tensors: tuple[BatchTensor, ...]
    forward_end_tick: int
    optimizer_tick: int


@dataclass
class Built:
    """A model on the device, its optimizer after a first step, and its repeated blocks."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    blocks: tuple[BlockRun, ...]
    unused: tuple[nn.Parameter, ...] = ()
    """Those that require a gradient and got none in the steps that were run."""

    def optimizer_state(self) -> Iterator[torch.Tensor]:
        """Yield the tensors that the optimizer keeps on the device."""
        for state in self.optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor) and value.is_meta:
                    yield value
