"""From training time without stops to the time that a run really takes, with its range.

The run's time is a product and a sum: what training takes at the predicted step time, which is
uncertain by a factor, and on top what its stops cost, which is random at any given rate, while the
rate itself is known to a factor. Over the first the distribution function is a normal one of the
logarithm, in closed form; over the others it is summed at points of equal probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from statistics import NormalDist

from ..plan.parts import Estimated, Stops
from .priors import Prior, prior
from .restarts import (
    MOST_INTERVAL_S,
    Conditions,
    Elapsed,
    best_interval_s,
    elapsed,
    mean_s,
    segments_of,
)
from .stops import as_conditions

DECILE = NormalDist().inv_cdf(0.9)
"""Standard deviations from the middle to either end of an interval of 80 %."""
NORMAL = NormalDist()
ROOT_2 = math.sqrt(2)
RATE_POINTS = 5
LOSS_POINTS = 24
FEW_LOSS_POINTS = 4
"""Where a run is hardly ever stopped."""
HARDLY_EVER = 0.05
CLOSE_CHANCE, CLOSE_LOG = 5e-4, 1e-6
CLOSE_SHARE = 1e-9
MOST_TURNS = 40


@dataclass(frozen=True, kw_only=True)
class ExpectedRun:
    """A run with its checkpoints and stops, from its first step to its last; seconds."""

    training_s: float
    """Steps alone."""
    beside_s: float
    """Evaluation, and steps that are slower than usual."""
    checkpoints_s: float
    """Held up by checkpoints."""
    stopped_s: float
    """Lost work, restarts: all that is billed because of stops."""
    waited_s: float
    """Without machines, and not billed."""
    interval_s: float
    """Training between two checkpoints, as proposed; a short run has only the one at its end."""
    stops: float
    """Mean number of stops."""
    low_s: float
    high_s: float
    """The ends of 80 % of the whole."""
    chance_within: Callable[[float], float]
    """Seconds → the chance that it takes no longer."""

    @property
    def elapsed_s(self) -> float:
        """Mean of the whole."""
        return self.billed_s + self.waited_s

    @property
    def billed_s(self) -> float:
        """Mean of what is paid for."""
        return self.training_s + self.beside_s + self.checkpoints_s + self.stopped_s


def interval_s(of: Conditions) -> float:
    """Return the time between checkpoints that is proposed: the best, half an hour at most."""
    return min(best_interval_s(of.rate_per_s, of.stall_s), MOST_INTERVAL_S)


def elapsed_s(training_s: float, of: Conditions) -> float:
    """Return the mean time of a run with checkpoints and stops; searches ask thousands of times."""
    work_s = training_s * (1 + _beside().value)
    return mean_s(work_s, segments_of(work_s, interval_s(of)), of)


def training_s_in(paid_s: float, of: Conditions) -> float:
    """Return how much training fits into a time with checkpoints and stops; 0 where none does."""
    if paid_s <= 0:
        return 0.0
    trained_s = paid_s
    for _ in range(MOST_TURNS):
        share = paid_s / elapsed_s(trained_s, of)
        trained_s *= share
        if abs(share - 1) < CLOSE_SHARE:
            break
    gap = CLOSE_SHARE
    while elapsed_s(trained_s, of) > paid_s:
        trained_s *= 1 - gap
        gap *= 2
    return trained_s


def expected_run(training_s: Estimated, stops: Stops) -> ExpectedRun:
    """Return what a run takes whose steps alone take `training_s`.

    Args:
        training_s: steps times step time, with its interval.
        stops: how often it is stopped, and what stops and checkpoints take.
    """
    of = as_conditions(stops)
    beside = _beside()
    work_s = training_s.value * (1 + beside.value)
    segments = segments_of(work_s, interval_s(of))
    mean = elapsed(work_s, segments, of)
    held_s = segments * of.stall_s
    spread = _Spread(
        steps_s=work_s + held_s,
        up=math.hypot(
            _log(training_s.high / training_s.value), _log((1 + beside.high) / (1 + beside.value))
        )
        / DECILE,
        down=math.hypot(
            _log(training_s.value / training_s.low), _log((1 + beside.value) / (1 + beside.low))
        )
        / DECILE,
        losses_s=tuple(_losses(work_s, segments, of, stops)),
    )
    return ExpectedRun(
        training_s=training_s.value,
        beside_s=work_s - training_s.value,
        checkpoints_s=held_s,
        stopped_s=mean.mean_s - mean.waited_s - work_s - held_s,
        waited_s=mean.waited_s,
        interval_s=interval_s(of),
        stops=mean.stops,
        low_s=spread.quantile(0.1),
        high_s=spread.quantile(0.9),
        chance_within=spread.chance_within,
    )


@dataclass(frozen=True, kw_only=True)
class _Spread:
    """The distribution of a run's time: (steps + a loss) times a log-normal factor."""

    steps_s: float
    up: float
    """Standard deviation of the factor's logarithm above 1."""
    down: float
    """The same below 1."""
    losses_s: tuple[tuple[float, float], ...]
    """What stops cost, with the chance of each."""

    def chance_within(self, seconds: float) -> float:
        """Return the chance that the run takes no longer."""
        if seconds <= 0:
            return 0.0
        log_s = math.log(seconds)
        return math.fsum(chance * self._below(log_s - one) for one, chance in self._logs)

    @cached_property
    def _logs(self) -> tuple[tuple[float, float], ...]:
        return tuple((math.log(self.steps_s + loss), chance) for loss, chance in self.losses_s)

    def _below(self, log_factor: float) -> float:
        width = self.up if log_factor > 0 else self.down
        if width == 0:
            return 1.0 if log_factor >= 0 else 0.0
        return 0.5 * math.erfc(-log_factor / (width * ROOT_2))

    def quantile(self, chance: float) -> float:
        """Return the time that is not passed with this chance.

        Of the logarithm of the time, the normal score of its chance is nearly a line: false
        position finds it in a few steps, and bisection where it is not.
        """
        logs = [one for one, _ in self._logs]
        low, high = min(logs) - 6 * self.down, max(logs) + 6 * self.up
        at = (low + high) / 2
        wanted = NORMAL.inv_cdf(chance)
        for turn in range(MOST_TURNS):
            found = self.chance_within(math.exp(at))
            if abs(found - chance) < CLOSE_CHANCE or high - low < CLOSE_LOG:
                break
            low, high = (at, high) if found < chance else (low, at)
            slope = (self.up if found > 0.5 else self.down) or 1.0
            score = NORMAL.inv_cdf(min(max(found, 1e-9), 1 - 1e-9))
            guess = at + (wanted - score) * slope
            at = guess if turn % 3 and low < guess < high else (low + high) / 2
        return math.exp(at)


def _losses(
    work_s: float, segments: int, of: Conditions, stops: Stops
) -> Iterator[tuple[float, float]]:
    """Yield what stops cost at points of equal probability, over rates and over chance."""
    for factor in _rate_factors(stops):
        at = elapsed(work_s, segments, replace(of, rate_per_s=of.rate_per_s * factor))
        yield 0.0, at.none_chance / RATE_POINTS
        some = 1 - at.none_chance
        if some > 0:
            steps_s = work_s + segments * of.stall_s
            count = LOSS_POINTS if some > HARDLY_EVER else FEW_LOSS_POINTS
            for loss in _points_of_loss(at, steps_s, count):
                yield loss, some / RATE_POINTS / count


def _points_of_loss(at: Elapsed, steps_s: float, count: int) -> Iterator[float]:
    """Yield the loss at points of equal probability, given that there is one.

    A gamma distribution of the same mean and variance, by Wilson and Hilferty's cube.
    """
    some = 1 - at.none_chance
    loss_s = at.mean_s - steps_s
    mean = loss_s / some
    square = (at.variance_s2 + loss_s**2) / some
    shape = mean**2 / max(square - mean**2, 1e-12 * mean**2)
    for z in _normal_points(count):
        yield mean * max(0.0, 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3


def _rate_factors(stops: Stops) -> Iterator[float]:
    up = stops.per_hour_high / stops.per_hour
    down = stops.per_hour / stops.per_hour_low
    for z in _normal_points(RATE_POINTS):
        yield (up if z > 0 else down) ** (z / DECILE)


@cache
def _normal_points(count: int) -> tuple[float, ...]:
    """Return the middles of `count` equally likely parts of a standard normal distribution."""
    return tuple(NORMAL.inv_cdf((i + 0.5) / count) for i in range(count))


def _log(ratio: float) -> float:
    return math.log(max(1.0, ratio))


@cache
def _beside() -> Prior:
    return prior("beside_steps")
