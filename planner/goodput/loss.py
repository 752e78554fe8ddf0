"""What stops cost over some parts of a run: chances and means, for arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .restarts import Conditions, elapsed
from .spread import normal_below_all

Array = Any
"""numpy array of floats, or a number."""


@dataclass(frozen=True, kw_only=True)
class PartLoss:
    """What stops add to one part of a run; arrays of one shape."""

    mean_s: Array
    variance_s2: Array
    waited_s: Array
    """Mean time without machines in it."""
    stopped_per_part: Array
    """Rate of stops times the part: e to minus it is the chance that nothing stops it."""
    least_s: Array
    """What one stop costs at least: the restart."""

    @classmethod
    def of(cls, part_work_s: Array, of: Conditions) -> PartLoss:
        """Return it for a part of so much work and a checkpoint."""
        found = elapsed(part_work_s, 1, of, np)
        part_s = part_work_s + of.stall_s
        return cls(
            mean_s=np.maximum(found.mean_s - part_s, 1e-12),
            variance_s2=found.variance_s2,
            waited_s=found.waited_s,
            stopped_per_part=of.rate_per_s * part_s,
            least_s=of.restart_s,
        )

    def within(self, bound_s: Array, parts: Array) -> tuple[Array, Array]:
        """Return the chance that so many parts lose no more, and the mean of the loss where so.

        The second counts 0 where more is lost. Nothing is lost, or one restart and a gamma
        distribution beyond it, by Wilson and Hilferty's cube.
        """
        parts = np.maximum(parts, 1e-9)
        some = np.maximum(-np.expm1(-self.stopped_per_part * parts), 1e-300)
        mean = self.mean_s * parts / some
        square = (self.variance_s2 * parts + (self.mean_s * parts) ** 2) / some
        beyond = np.maximum(mean - self.least_s, 1e-9 * mean)
        shape = beyond**2 / np.maximum(square - mean**2, 1e-12 * beyond**2)
        over = np.maximum(bound_s - self.least_s, 0.0) / (beyond / shape)
        below = np.where(over > 0, _gamma_below(over, shape), 0.0)
        longer = np.where(over > 0, _gamma_below(over, shape + 1), 0.0)
        chance = (1 - some) * (bound_s >= 0) + some * below
        return chance, some * (self.least_s * below + beyond * longer)


def _gamma_below(x: Array, shape: Array) -> Array:
    """Return the chance that a gamma variable of scale 1 is below x."""
    z = 3 * np.sqrt(shape) * (np.cbrt(x / shape) - 1 + 1 / (9 * shape))
    return normal_below_all(z)
