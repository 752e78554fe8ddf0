"""One factor on the kernel times of a device, fitted to measured steps; errors with and without it.

Every configuration (a model with its params in one plan) is predicted with a few factors; between
them the step time is interpolated, logarithm against logarithm. The factor is the one with the
least mean of |log(predicted / measured)|: a run that is far off moves it no more than one that is
a little off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

LARGEST_FACTOR = 2.0
"""Beyond it, or its inverse, more is wrong than a rate."""
TRIED = 9
"""Factors with which every configuration is predicted."""
STEPS = 401
"""Factors among which the best is chosen, 0.35 % from one to the next."""
Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class MeasuredSteps:
    """Configurations of one device: measured, and predicted with each factor that was tried."""

    measured_s: Array
    """Shape (configurations,)."""
    predicted_s: Array
    """Shape (configurations, factors)."""
    factors: Array
    """Increasing."""

    def at(self, factor: float) -> Array:
        """Return the predicted step times with a factor, seconds, shape (configurations,)."""
        logs = np.log(self.predicted_s)
        at = np.log(factor)
        return np.exp([np.interp(at, np.log(self.factors), row) for row in logs])

    def errors(self, factor: float) -> Array:
        """Return predicted ÷ measured − 1 of every configuration with a factor."""
        return self.at(factor) / self.measured_s - 1

    def without(self, index: int) -> MeasuredSteps:
        """Return the same with one configuration left out."""
        return MeasuredSteps(
            measured_s=np.delete(self.measured_s, index),
            predicted_s=np.delete(self.predicted_s, index, axis=0),
            factors=self.factors,
        )


def tried_factors() -> Array:
    """Return the factors to predict with, increasing; 1 is one of them."""
    return np.exp(np.linspace(-1, 1, TRIED) * np.log(LARGEST_FACTOR))


def predicted_with(
    measured_s: Sequence[float], predict: Callable[[float], Sequence[float]]
) -> MeasuredSteps:
    """Return measured steps with what is predicted of them.

    Args:
        measured_s: of every configuration, seconds.
        predict: a factor → the step times of all configurations, seconds.
    """
    factors = tried_factors()
    return MeasuredSteps(
        measured_s=np.asarray(measured_s, dtype=float),
        predicted_s=np.array([predict(float(one)) for one in factors]).T,
        factors=factors,
    )


def best_factor(steps: MeasuredSteps) -> float:
    """Return the factor that predicts the steps best; the one nearest to 1 of equal ones."""
    wanted = np.exp(np.linspace(-1, 1, STEPS) * np.log(LARGEST_FACTOR))
    wanted = np.array(sorted(wanted, key=lambda one: abs(np.log(one))))
    off = [np.mean(np.abs(np.log(steps.at(one) / steps.measured_s))) for one in wanted]
    return float(wanted[int(np.argmin(np.round(off, 9)))])


def held_out_error(steps: MeasuredSteps) -> float:
    """Return the mean |error| of every configuration, its factor fitted to all the others."""
    errors = [
        abs(steps.errors(best_factor(steps.without(i)))[i]) for i in range(len(steps.measured_s))
    ]
    return float(np.mean(errors))
