"""One step: forward and backward of every micro-batch, then the optimizer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from ....profiles.user_model.checks import Batch
from ..job import Execution
from ..parallel.parallelize import micro_batch_sync
from .loss_weights import LossWeights
from .numerics import LossScaler, clip_gradients

Mark = Callable[[str], None]
"""Told the name of the part of a step that ends now."""


class Gradients(Protocol):
    """Computes the gradients of one step; the model whole, or as pipeline stages."""

    def __call__(self, batches: Sequence[Batch], scale: Tensor | None, mark: Mark) -> Tensor | None:
        """Return the mean loss of the micro-batches; None on a stage that does not know it."""
        ...


class WholeModel:
    """Gradients of a model that every rank runs from the first layer to the last."""

    def __init__(
        self, module: nn.Module, execution: Execution, weights: LossWeights | None = None
    ) -> None:
        self.module = module
        self._execution = execution
        self._weights = weights
        self.number = 0
        """Of the micro-batch that runs, in its step."""

    def __call__(self, batches: Sequence[Batch], scale: Tensor | None, mark: Mark) -> Tensor | None:
        """Return the mean loss of the micro-batches."""
        total: Tensor | None = None
        parts = None if self._weights is None else self._weights.parts(batches)
        for number, batch in enumerate(batches):
            self.number, is_last = number, number + 1 == len(batches)
            with micro_batch_sync(self.module, self._execution, batch, is_last=is_last):
                loss = self.module(batch)
                loss = loss / len(batches) if parts is None else loss * parts[number]
                mark("forward")
                (loss if scale is None else loss * scale).backward()
                mark("backward")
            total = loss.detach() if total is None else total + loss.detach()
        return total


@dataclass
class Step:
    """All that one step needs; call it once for each."""

    gradients: Gradients
    optimizer: torch.optim.Optimizer
    parameters: list[nn.Parameter]
    """That train on this rank; none in a pipeline stage that is frozen as a whole."""
    device: torch.device
    execution: Execution
    scaler: LossScaler | None
    clip_norm: float | None
    counted_elsewhere: list[nn.Parameter] = field(default_factory=list)
    """Weights that an earlier pipeline stage holds too, and counts in the norm."""

    def __call__(self, batches: Sequence[Batch], mark: Mark) -> tuple[Tensor | None, Tensor | None]:
        """Return (mean loss, norm of the gradients), each None where it is not known."""
        scaler = self.scaler
        scale = None if scaler is None else scaler.scale(self._one())
        loss = self.gradients(batches, scale, mark)
        norm = None
        if self.clip_norm is not None:
            if scaler is not None:
                scaler.unscale_(self.optimizer)
            norm = clip_gradients(
                self.parameters,
                self.execution.layout,
                self.clip_norm,
                counted_elsewhere=self.counted_elsewhere,
            )
        if scaler is not None:
            scaler.step(self.optimizer)
            scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        mark("optimizer")
        return loss, norm

    def _one(self) -> Tensor:
        return torch.ones((), device=self.device)


class PartTimes:
    """Seconds of each part of a step, on the device's own clock where it has one.

    Events of a device are read one step later, so that nobody waits for them.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_device = device.type == "cuda"
        self._marks: list[tuple[str, torch.cuda.Event | float]] = []
        self._finished: list[tuple[str, torch.cuda.Event | float]] = []

    def begin(self) -> None:
        """Start a step."""
        self._finished, self._marks = self._marks, []
        self.mark("begin")

    def mark(self, part: str) -> None:
        """End a part of the step."""
        if not self._on_device:
            self._marks.append((part, time.perf_counter()))
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append((part, event))

    def of_step(self) -> dict[str, float]:
        """Return the seconds of each part of the step before the one that runs now."""
        parts: dict[str, float] = {}
        for (_, before), (part, after) in zip(self._finished, self._finished[1:], strict=False):
            if isinstance(before, torch.cuda.Event) and isinstance(after, torch.cuda.Event):
                after.synchronize()
                seconds = before.elapsed_time(after) / 1e3
            else:
                seconds = float(after) - float(before)  # pyright: ignore[reportArgumentType]
            parts[part] = parts.get(part, 0.0) + seconds
        return parts
