"""What tracing leaves: what the file did, and each step that was recorded."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..profile import BatchTensor
from .recording.recorder import Recorder


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """What the file turned out to do while it ran."""

    autocast: torch.dtype | None
    """The dtype that it casts to itself."""
    compiles: bool
    loss_in_model: bool
    """Whether the model computes its cross-entropy itself."""
    returns_logits: bool
    """Whether it returns the logits of that, too."""
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
