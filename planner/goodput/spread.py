"""A value that is known to a factor: a log-normal distribution whose halves differ in width.

Its middle is the likely value and 80 % of it lie between the ends of the value's range. The halves
are cut off at the 5th and the 95th percentile: the time of a run grows exponentially with the rate
of its stops, so that its mean over a whole log-normal tail would be infinite. Beyond the 95th
percentile of spot's range (0.19 an hour) nobody stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

NORMAL = NormalDist()
DECILE = NORMAL.inv_cdf(0.9)
"""Standard deviations from the middle to either end of an interval of 80 %."""
CUT_CHANCE = 0.05
CUT = NORMAL.inv_cdf(1 - CUT_CHANCE)
RATE_POINTS = 15
FEW_EVENTS = 0.01
"""Below so many expected events e^events is 1 to 1 %."""
NEWTON_TURNS = 12


@dataclass(frozen=True)
class Spread:
    """Standard deviations of the logarithm of a factor, above and below its middle of 1."""

    up: float
    down: float

    @classmethod
    def of(cls, value: float, low: float, high: float) -> Spread:
        """Return the spread of a value above 0 with its interval of 80 %."""
        return cls(_log(high / value) / DECILE, _log(value / low) / DECILE)

    def factor(self, z: float) -> float:
        """Return the factor so many standard deviations from the middle."""
        z = min(max(z, -CUT), CUT)
        return math.exp(z * (self.up if z > 0 else self.down))

    def points(self, count: int) -> Iterator[float]:
        """Yield the factor at the middles of `count` equally likely parts."""
        for z in normal_points(count):
            yield self.factor(z)

    @property
    def mean(self) -> float:
        """Mean of the factor."""
        return _half(self.up) + _half(-self.down)

    @property
    def whole_mean(self) -> float:
        """Mean of the factor where neither half is cut off, as that of a step time is not."""
        return whole_half(self.up) + whole_half(-self.down)


@lru_cache(4096)
def typical_rate(value: float, low: float, high: float, again_s: float) -> float:
    """Return the rate per second at which stops cost what they cost on average over a range.

    Stops cost in proportion to λ · e^(λ·again) a second: what follows a stop may be stopped too.
    Where that is rare at all rates of the range, the typical rate is the mean.

    Args:
        value: likely rate per second, above 0.
        low: of the range of 80 %.
        high: of the range of 80 %.
        again_s: `restarts.again_s`.
    """
    spread = Spread.of(value, low, high)
    mean = value * spread.mean
    if value * spread.factor(CUT) * again_s < FEW_EVENTS:
        return mean
    rates = [value * one for one in spread.points(RATE_POINTS)]
    grown = math.fsum(rate * math.exp(rate * again_s) for rate in rates) / math.fsum(rates)
    wanted = mean * again_s * grown
    x = math.log1p(wanted)
    for _ in range(NEWTON_TURNS):
        x -= (x - wanted * math.exp(-x)) / (1 + x)
    return x / again_s


@cache
def normal_points(count: int) -> tuple[float, ...]:
    """Return the middles of `count` equally likely parts of a standard normal distribution."""
    return tuple(NORMAL.inv_cdf((i + 0.5) / count) for i in range(count))


def whole_half(width: float) -> float:
    """Return the part of the mean from one half of the distribution, up to its very end."""
    return math.exp(width**2 / 2) * normal_below(width)


def normal_below(z: float) -> float:
    """Return the chance that a standard normal variable is below z."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def normal_below_all(z: Any) -> Any:
    """Return the same for an array, to 1e-5: read from a table."""
    return np.interp(z, *_table())


@cache
def _table() -> tuple[Any, Any]:
    z = np.linspace(-6.0, 6.0, 1201)
    return z, np.array([normal_below(one) for one in z])


def _half(width: float) -> float:
    """Return the part of the mean from one half of the distribution, cut off at its end."""
    inside = normal_below(CUT - width) - normal_below(-width)
    return math.exp(width**2 / 2) * inside + CUT_CHANCE * math.exp(width * CUT)


def _log(ratio: float) -> float:
    return math.log(max(1.0, ratio))
