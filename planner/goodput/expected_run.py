"""From training time without stops to the time that a run really takes, with its range.

The run's time is a product and a sum: what training takes at the predicted step time, which is
uncertain by a factor, and on top what its stops cost, which is random at any given rate, while the
rate itself is known to a factor. Over the first the distribution function is a normal one of the
logarithm, in closed form; over the others it is summed at points of equal probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...catalog.units import SECONDS_PER_HOUR
from ..plan.parts import Estimated, Stops
from .priors import beside_steps, beside_steps_mean
from .restarts import (
    MOST_INTERVAL_S,
    Conditions,
    best_interval_s,
    elapsed,
    mean_s,
    segments_of,
)
from .spread import NORMAL, RATE_POINTS, Spread, normal_below_all, normal_points
from .stops import as_conditions

Array = Any
"""numpy array of floats."""
LOSS_POINTS = 12
FACTOR_POINTS = 6
NARROWEST = 1e-12
"""Standard deviation of a time that is known exactly."""
CLOSE_CHANCE, CLOSE_LOG = 5e-4, 1e-6
CLOSE_SHARE = 1e-9
SHORTEST_S = 1e-9
"""Work whose logarithm can be taken."""
NEVER_S = 1e18
"""Between checkpoints that take no time and so cost nothing."""
MOST_TURNS = 40


@dataclass(frozen=True, kw_only=True)
class ExpectedRun:
    """A run with its checkpoints and stops, from its first step to its last; seconds."""

    training_s: float
    """Steps alone: the mean over what a step may take."""
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
    evaluation_s: float | None = None
    """Evaluation alone, of `beside_s`; None where it is assumed with the slow steps."""

    @property
    def elapsed_s(self) -> float:
        """Mean of the whole."""
        return self.billed_s + self.waited_s

    @property
    def ends_s(self) -> tuple[float, float]:
        """The ends of at least 80 % of the whole, with its mean between them.

        Rare stops that cost much take the mean of a short run beyond nine in ten of such runs.
        """
        return min(self.low_s, self.elapsed_s), max(self.high_s, self.elapsed_s)

    @property
    def billed_s(self) -> float:
        """Mean of what is paid for."""
        return self.training_s + self.beside_s + self.checkpoints_s + self.stopped_s


def mean_training_s(training_s: Estimated) -> float:
    """Return the mean of what steps take, seconds.

    Not the likely time, which is the middle of its interval: that is as wide to either side in
    logarithms, and so wider above in seconds. Here alone the interval of a step becomes an
    expectation; `many_runs.py` does the same for arrays.
    """
    if training_s.value <= 0:
        return training_s.value
    spread = Spread.of(training_s.value, training_s.low, training_s.high)
    return training_s.value * spread.whole_mean


def interval_s(of: Conditions) -> float:
    """Return the time between checkpoints that is proposed: the best, half an hour at most."""
    return min(best_interval_s(of.rate_per_s, of.stall_s), MOST_INTERVAL_S)


def elapsed_s(training_s: float, of: Conditions) -> float:
    """Return the mean time of a run with checkpoints and stops; searches ask thousands of times.

    Args:
        training_s: mean of what its steps take (`mean_training_s`).
        of: what stops it.
    """
    work_s = training_s * beside_steps_mean(of.evaluation)
    return mean_s(work_s, segments_of(work_s, interval_s(of)), of)


def mean_stops(training_s: float, of: Conditions) -> float:
    """Return the mean number of stops of such a run."""
    work_s = training_s * beside_steps_mean(of.evaluation)
    return elapsed(work_s, segments_of(work_s, interval_s(of)), of).stops


def training_s_in(paid_s: float, of: Conditions) -> float:
    """Return how much training fits into a time with checkpoints and stops; 0 where none does.

    Of a step so much fits as takes this on average (`mean_training_s`).
    """
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
    steps_s = mean_training_s(training_s)
    work_s = steps_s * beside_steps_mean(of.evaluation)
    segments = segments_of(work_s, interval_s(of))
    mean = elapsed(work_s, segments, of)
    held_s = segments * of.stall_s
    spread = _distribution(training_s, stops)
    return ExpectedRun(
        training_s=steps_s,
        beside_s=work_s - steps_s,
        evaluation_s=_evaluation_s(steps_s, stops),
        checkpoints_s=held_s,
        stopped_s=mean.mean_s - mean.waited_s - work_s - held_s,
        waited_s=mean.waited_s,
        interval_s=interval_s(of),
        stops=mean.stops,
        low_s=spread.quantile(0.1),
        high_s=spread.quantile(0.9),
        chance_within=spread.chance_within,
    )


def _evaluation_s(steps_s: float, stops: Stops) -> float | None:
    """Return the mean of what evaluations take of a mean of the steps; None where not known."""
    known = stops.evaluation
    if known is None:
        return None
    return steps_s * known.share * Spread.of(known.share, known.share_low, known.share_high).mean


def chances_within(training_s: Estimated, stops: Stops) -> Callable[[float], float]:
    """Return `ExpectedRun.chance_within` alone, which takes a third of the time."""
    return _distribution(training_s, stops).chance_within


def _distribution(training_s: Estimated, stops: Stops) -> _Distribution:
    of, beside = as_conditions(stops), beside_steps(stops.evaluation)
    middle_s = training_s.value * (1 + beside.value)
    segments = segments_of(middle_s, interval_s(of))
    return _Distribution(
        middle_s=middle_s,
        every_s=interval_s(of) or NEVER_S,
        stall_s=of.stall_s,
        factors=(
            Spread.of(training_s.value, training_s.low, training_s.high),
            Spread.of(1 + beside.value, 1 + beside.low, 1 + beside.high),
        ),
        losses=_losses(middle_s, segments, of, stops),
    )


@dataclass(frozen=True, kw_only=True)
class _Distribution:
    """The distribution of a run's time: steps times two log-normal factors, checkpoints and loss.

    Slower steps have more checkpoints; the loss is in proportion to steps and checkpoints.
    """

    middle_s: float
    """Of what steps take."""
    every_s: float
    """Between two checkpoints."""
    stall_s: float
    factors: tuple[Spread, Spread]
    losses: tuple[Array, Array]
    """What stops cost, as shares of the steps and checkpoints, with the chance of each."""

    def chance_within(self, seconds: float) -> float:
        """Return the chance that the run takes no longer."""
        return self._below(math.log(seconds)) if seconds > 0 else 0.0

    def _below(self, log_s: float) -> float:
        narrow, wide = self._by_width
        losses, chances = self.losses
        most_s = _work_within_s(np.exp(log_s - np.log1p(losses)), self.every_s, self.stall_s)
        z = np.array(normal_points(FACTOR_POINTS))
        factor = z * np.where(z > 0, narrow.up, narrow.down)
        above = np.subtract.outer(np.log(most_s / self.middle_s), factor)
        z = above * np.where(above > 0, 1 / max(wide.up, NARROWEST), 1 / max(wide.down, NARROWEST))
        return float(chances @ normal_below_all(z).mean(axis=1))

    @cached_property
    def _by_width(self) -> list[Spread]:
        return sorted(self.factors, key=lambda one: one.up + one.down)

    def _ends(self) -> tuple[float, float]:
        """Return logarithms of times between which nearly all runs are."""
        narrow, wide = self._by_width
        work_s = self.middle_s * math.exp(6 * (narrow.up + wide.up))
        checkpoints = segments_of(work_s, self.every_s) + 1
        longest_s = (work_s + checkpoints * self.stall_s) * (1 + float(self.losses[0].max()))
        return math.log(self.middle_s) - 6 * (narrow.down + wide.down), math.log(longest_s)

    def quantile(self, chance: float) -> float:
        """Return the time that is not passed with this chance.

        Of the logarithm of the time, the normal score of its chance is nearly a line: false
        position finds it in a few steps, and bisection where it is not.
        """
        wide = self._by_width[1]
        low, high = self._ends()
        at = (low + high) / 2
        wanted = NORMAL.inv_cdf(chance)
        for turn in range(MOST_TURNS):
            found = self._below(at)
            if abs(found - chance) < CLOSE_CHANCE or high - low < CLOSE_LOG:
                break
            low, high = (at, high) if found < chance else (low, at)
            slope = (wide.up if found > 0.5 else wide.down) or 1.0
            score = NORMAL.inv_cdf(min(max(found, 1e-9), 1 - 1e-9))
            guess = at + (wanted - score) * slope
            at = guess if turn % 3 and low < guess < high else (low + high) / 2
        return math.exp(at)


def _work_within_s(seconds: Array, every_s: float, stall_s: float) -> Array:
    """Return the longest work that ends within these times, its checkpoints among it.

    Work has as many checkpoints as `segments_of` says: one more as soon as it is half a part longer
    than a whole number of them.
    """
    checkpoints = np.maximum(1.0, np.floor((seconds + every_s / 2) / (every_s + stall_s)))
    work_s = np.minimum(seconds - checkpoints * stall_s, (checkpoints + 0.5) * every_s)
    return np.maximum(work_s, SHORTEST_S)


def _losses(work_s: float, segments: int, of: Conditions, stops: Stops) -> tuple[Array, Array]:
    """Return what stops cost at points of equal probability, over rates and over chance.

    Shares of the steps with their checkpoints, and the chance of each; both of one shape.
    """
    steps_s = work_s + segments * of.stall_s
    likely_per_s = stops.per_hour / SECONDS_PER_HOUR
    spread = Spread.of(stops.per_hour, stops.per_hour_low, stops.per_hour_high)
    rates = likely_per_s * np.array([*spread.points(RATE_POINTS)])
    at = elapsed(work_s, segments, replace(of, rate_per_s=rates), np)
    some = np.maximum(-np.expm1(-rates * steps_s), 1e-300)
    points_s = _points_of_loss(at.mean_s - steps_s, at.variance_s2, some, of.restart_s)
    losses = np.concatenate([np.zeros(RATE_POINTS), points_s.ravel() / steps_s])
    chances = np.concatenate([1 - some, np.repeat(some / LOSS_POINTS, LOSS_POINTS)])
    return losses, chances / RATE_POINTS


def _points_of_loss(loss_s: Array, variance_s2: Array, some: Array, least_s: float) -> Array:
    """Return the loss at points of equal probability, given that there is one: [rates, points].

    One restart, and beyond it a gamma distribution of the same mean and variance, by Wilson and
    Hilferty's cube.
    """
    mean = loss_s / some
    variance = (variance_s2 + loss_s**2) / some - mean**2
    beyond = np.maximum(mean - least_s, 1e-9 * abs(mean))
    shape = beyond**2 / np.maximum(variance, 1e-12 * beyond**2)
    z = np.array(normal_points(LOSS_POINTS))
    cube = (1 - 1 / (9 * shape))[:, None] + z / (3 * np.sqrt(shape))[:, None]
    return least_s + beyond[:, None] * np.maximum(0.0, cube) ** 3
