"""What tracing leaves: the model as it was built, and each step that was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ..profile import BatchTensor
from ..user_model.structure.blocks import BlockRun
from .gradient_kinds import GradientKinds, RefusedGradientsError, state_tensors
from .recording.recorder import Recorder


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
    kinds: GradientKinds
    """Which gradients there are not, or not dense; of the layers until `is_learnt`."""
    is_learnt: bool = False
    """Whether a step showed that they are others than its layers say."""
    refusal: RefusedGradientsError | None = None
    """Why the optimizer has no state yet: it takes no gradients of the kinds that layers say."""

    def optimizer_state(self) -> Iterator[torch.Tensor]:
        """Return the tensors that the optimizer keeps on the device."""
        return state_tensors(self.optimizer)
