"""What no machine changes of a candidate: the steps of the whole work, and a checkpoint's size."""

from __future__ import annotations

from ...profiles.profile import Profile
from ..cost.run_cost import samples_of, steps_of
from ..plan.question import Work
from ..plan.setup import Setup
from ..software.checkpoint_size import checkpoint_bytes
from .frozen_ways import Way


class WholeWork:
    """The work of a question, worked out once for each global batch and each way of keeping state.

    Args:
        work: how much is trained.
        profile: the model.
    """

    def __init__(self, work: Work, profile: Profile) -> None:
        self._work = work
        self._profile = profile
        self._steps: dict[int, int | None] = {}
        self._bytes: dict[Way, float] = {}

    def steps(self, global_batch: int) -> int | None:
        """Return the optimizer steps of the whole work, where an amount of it was given."""
        if global_batch not in self._steps:
            samples = samples_of(self._work, self._profile.tokens_per_sample, global_batch)
            self._steps[global_batch] = None if samples is None else steps_of(samples, global_batch)
        return self._steps[global_batch]

    def checkpoint_bytes(self, base: Setup) -> float:
        """Return the bytes of a checkpoint."""
        way = base.precision, base.frozen_precision
        if way not in self._bytes:
            self._bytes[way] = checkpoint_bytes(self._profile, *way)
        return self._bytes[way]
