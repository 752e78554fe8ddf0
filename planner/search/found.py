"""A setup that fits on a kind of machine, with its step time, before its price is looked at."""

from __future__ import annotations

from dataclasses import dataclass

from ...catalog.vocabulary import Recompute
from ..plan.layout import Layout
from ..plan.setup import Setup


@dataclass(frozen=True, kw_only=True)
class Found:
    """A setup that fits, with its step time."""

    layout: Layout
    base: Setup
    """With everything but the layout, the batch and the recompute policy."""
    micro_batch: int
    grad_accum: int
    recompute: Recompute
    recompute_share: float
    step_s: float
    """The likely time of a step."""
    over_likely: float
    """Mean of the step time over `step_s`, its likely value."""

    @property
    def global_batch(self) -> int:
        """Samples of one optimizer step on all ranks."""
        return self.micro_batch * self.grad_accum * self.layout.data
