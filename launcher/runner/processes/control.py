"""What all processes agree on after every step, in one small reduction that nobody waits for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

LOSS, LOSSES, STOPS, ELAPSED, WRITE = range(5)
COUNT = 5


@dataclass(frozen=True, kw_only=True)
class Agreed:
    """The same on every process."""

    loss: float
    """Mean over the ranks that know one; NaN where any is."""
    stop: bool
    """Whether any process was told to stop."""
    elapsed_s: float
    """Since training began, by the clock of the first process."""
    write_s: float
    """How long the last checkpoint took, as the first process saw it."""


class Control:
    """Sums a few numbers over all processes; read one step later, when they have long arrived."""

    def __init__(self, device: torch.device, *, world: int, is_first: bool) -> None:
        self._device = device
        self._world = world
        self._is_first = is_first
        self._arriving: Tensor | None = None
        self._arrived: torch.cuda.Event | None = None

    def exchange(
        self, loss: Tensor | None, *, stop: bool, elapsed_s: float, write_s: float
    ) -> Agreed | None:
        """Begin to sum this step's numbers; return those of the step before.

        Args:
            loss: mean over this rank's micro-batches; None on a rank that knows none.
            stop: whether this process was told to stop.
            elapsed_s: since training began, by its own clock.
            write_s: how long its last checkpoint took.
        """
        before = self.read()
        numbers = torch.zeros(COUNT, dtype=torch.float64)
        numbers[STOPS] = float(stop)
        if self._is_first:
            numbers[ELAPSED], numbers[WRITE] = elapsed_s, write_s
        numbers = numbers.to(self._device, non_blocking=True)
        if loss is not None:
            numbers[LOSS] = loss.detach().to(torch.float64)
            numbers[LOSSES] = 1.0
        if self._world > 1:
            dist.all_reduce(numbers)
        if self._device.type == "cuda":
            host = torch.empty(COUNT, dtype=torch.float64, pin_memory=True)
            numbers = host.copy_(numbers, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()
        self._arriving = numbers
        return before

    def arrived(self) -> Agreed | None:
        """Return what was sent last, without waiting; None where it has not arrived."""
        if self._arrived is not None and not self._arrived.query():
            return None
        return self.read()

    def read(self) -> Agreed | None:
        """Return what was sent last, waiting for it if it must; None before anything was."""
        if self._arriving is None:
            return None
        if self._arrived is not None:
            self._arrived.synchronize()
        loss, losses, stops, elapsed_s, write_s = self._arriving.tolist()
        return Agreed(
            loss=loss / losses if losses else float("nan"),
            stop=stops > 0,
            elapsed_s=elapsed_s,
            write_s=write_s,
        )
