"""What stops cost over some parts of a run: chances and means, for arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..restarts import Conditions, elapsed
from ..spread import normal_below_all

Array = Any
"""numpy array of floats, or a number."""


BINS, LEAST_WEIGHT = 4000, 1e-7
_SCORES = np.linspace(-6.0, 6.0, 2401)
_BELOW = normal_below_all(_SCORES)


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
        some, beyond, shape = self._of_one_or_more(parts)
        over = np.maximum(bound_s - self.least_s, 0.0) / (beyond / shape)
        below = np.where(over > 0, _gamma_below(over, shape), 0.0)
        longer = np.where(over > 0, _gamma_below(over, shape + 1), 0.0)
        chance = (1 - some) * (bound_s >= 0) + some * below
        return chance, some * (self.least_s * below + beyond * longer)

    def points(self, bound_s: Array, parts: Array, count: int) -> tuple[Array, Array]:
        """Return what so many parts lose where it is no more than a bound, at points, and weights.

        Both have one more axis at the end: no loss at all first, then `count` points of equal
        chance. The weights add up to the chance of `within`.
        """
        parts = np.maximum(parts, 1e-9)
        some, beyond, shape = self._of_one_or_more(parts)
        over = np.maximum(bound_s - self.least_s, 0.0) / (beyond / shape)
        below = np.where(over > 0, _gamma_below(over, shape), 0.0)[..., None]
        z = _normal_score(below * (np.arange(count) + 0.5) / count)
        shape = shape[..., None]
        cube = 1 - 1 / (9 * shape) + z / (3 * np.sqrt(shape))
        least_s, beyond = np.broadcast_arrays(self.least_s, beyond)
        lost_s = least_s[..., None] + beyond[..., None] * np.maximum(cube, 0.0) ** 3
        weights = np.broadcast_to(some[..., None] * below / count, lost_s.shape)
        none = ((1 - some) * (bound_s >= 0))[..., None]
        return (
            np.concatenate([np.zeros_like(lost_s[..., :1]), lost_s], axis=-1),
            np.concatenate([np.broadcast_to(none, lost_s[..., :1].shape), weights], axis=-1),
        )

    def _of_one_or_more(self, parts: Array) -> tuple[Array, Array, Array]:
        """Return the chance of any loss, and of one the mean beyond a restart and its shape."""
        some = np.maximum(-np.expm1(-self.stopped_per_part * parts), 1e-300)
        mean = self.mean_s * parts / some
        square = (self.variance_s2 * parts + (self.mean_s * parts) ** 2) / some
        beyond = np.maximum(mean - self.least_s, 1e-9 * mean)
        return some, beyond, beyond**2 / np.maximum(square - mean**2, 1e-12 * beyond**2)


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What may become of a run, with the chance of each up to a factor; arrays of one shape."""

    elapsed_s: Array
    usd: Array
    weights: Array


def ends_of(values: Sequence[tuple[Array, Array]]) -> tuple[float, float]:
    """Return the ends of 80 % of values above 0 with their weights.

    They are counted in bins of a hundredth of a percent and more, and taken as even in each.
    """
    flat = [np.broadcast_arrays(*one) for one in values]
    logs = np.log(np.concatenate([one.ravel() for one, _ in flat]))
    weights = np.concatenate([one.ravel() for _, one in flat])
    used = weights > LEAST_WEIGHT * weights.max()
    counts, edges = np.histogram(logs[used], bins=BINS, weights=weights[used])
    below = np.concatenate([[0.0], np.cumsum(counts)]) / counts.sum()
    low, high = np.exp(np.interp((0.1, 0.9), below, edges))
    return float(low), float(high)


def _normal_score(chance: Array) -> Array:
    """Return where a standard normal variable is below with these chances, to 1e-4."""
    return np.interp(chance, _BELOW, _SCORES)


def _gamma_below(x: Array, shape: Array) -> Array:
    """Return the chance that a gamma variable of scale 1 is below x."""
    z = 3 * np.sqrt(shape) * (np.cbrt(x / shape) - 1 + 1 / (9 * shape))
    return normal_below_all(z)
