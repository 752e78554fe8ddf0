"""Expected time and cost of many plans at once: the closed form of `expected_run.py` for arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...catalog.units import SECONDS_PER_HOUR
from .priors import beside_steps_mean
from .restarts import MOST_INTERVAL_S, Conditions, again_s, elapsed
from .spread import (
    CUT,
    CUT_CHANCE,
    DECILE,
    FEW_EVENTS,
    NEWTON_TURNS,
    RATE_POINTS,
    normal_below_all,
    normal_points,
)

Array = Any
"""numpy array of floats, one for every plan."""
INTERVAL_TURNS = 8
"""Of Newton's method, which comes down to the root from Young's interval."""


@dataclass(frozen=True, kw_only=True)
class ManyRuns:
    """Plans to price; arrays of one shape [plans], or numbers that all of them share."""

    training_s: Array
    """Steps alone, at the likely step time."""
    training_s_low: Array
    training_s_high: Array
    """Ends of the interval of 80 %."""
    per_hour: Array
    """Likely stops per hour of the whole job, above 0."""
    per_hour_low: Array
    per_hour_high: Array
    """Ends of the interval of 80 %."""
    stall_s: Array
    """Above 0."""
    restart_s: Array
    wait_s: Array
    saved_share: Array = 0.0
    """Of the stops: those before which a notice saves the work."""
    usd_per_hour: Array
    """All nodes together; nan where it is not known."""


@dataclass(frozen=True, kw_only=True)
class ManyExpected:
    """What the plans are expected to take and to cost, from the first step to the last; [plans]."""

    elapsed_s: Array
    billed_s: Array
    usd: Array
    """nan where the price is not known."""
    interval_s: Array
    """Training between two checkpoints."""
    stops: Array
    goodput: Array
    """Share of the elapsed time that trains."""


def expected_runs(runs: ManyRuns) -> ManyExpected:
    """Return what `expected_run` says of each plan, without the distribution."""
    likely_per_s = np.asarray(runs.per_hour, dtype=float) / SECONDS_PER_HOUR
    again = again_s(
        likely_per_s, runs.stall_s, runs.restart_s, runs.wait_s, np, saved_share=runs.saved_share
    )
    rate_per_s = typical_rates(
        likely_per_s,
        runs.per_hour_low / SECONDS_PER_HOUR,
        runs.per_hour_high / SECONDS_PER_HOUR,
        again,
    )
    of = Conditions(
        rate_per_s=rate_per_s,
        stall_s=runs.stall_s,
        restart_s=runs.restart_s,
        wait_s=runs.wait_s,
        saved_share=runs.saved_share,
    )
    interval_s = np.minimum(best_intervals_s(rate_per_s, runs.stall_s), MOST_INTERVAL_S)
    steps_s = mean_trainings_s(runs.training_s, runs.training_s_low, runs.training_s_high)
    work_s = steps_s * beside_steps_mean()
    found = elapsed(work_s, np.maximum(1.0, np.round(work_s / interval_s)), of, np)
    billed_s = found.mean_s - found.waited_s
    return ManyExpected(
        elapsed_s=found.mean_s,
        billed_s=billed_s,
        usd=billed_s / SECONDS_PER_HOUR * runs.usd_per_hour,
        interval_s=interval_s,
        stops=found.stops,
        goodput=steps_s / found.mean_s,
    )


def mean_trainings_s(value: Array, low: Array, high: Array) -> Array:
    """Return `expected_run.mean_training_s` of arrays."""
    up = np.log(np.maximum(1.0, high / value)) / DECILE
    down = np.log(np.maximum(1.0, value / low)) / DECILE
    return value * (_whole_halves(up) + _whole_halves(-down))


def best_intervals_s(rate_per_s: Array, stall_s: Array) -> Array:
    """Return `restarts.best_interval_s` of arrays."""
    stalled = rate_per_s * stall_s
    x = np.minimum(np.sqrt(2 * stalled), -np.expm1(-1 - stalled))
    for _ in range(INTERVAL_TURNS):
        x = x + (x + stalled + np.log1p(-x)) * (1 - x) / x
    return x / rate_per_s


def typical_rates(value: Array, low: Array, high: Array, again_s: Array) -> Array:
    """Return `spread.typical_rate` of arrays."""
    up = np.log(np.maximum(1.0, high / value)) / DECILE
    down = np.log(np.maximum(1.0, value / low)) / DECILE
    mean = value * (_halves(up) + _halves(-down))
    total = grown = np.zeros(())
    for z in np.clip(normal_points(RATE_POINTS), -CUT, CUT):
        rate = value * np.exp(z * (up if z > 0 else down))
        total = total + rate
        grown = grown + rate * np.exp(rate * again_s)
    wanted = mean * again_s * grown / total
    x = np.log1p(wanted)
    for _ in range(NEWTON_TURNS):
        x = x - (x - wanted * np.exp(-x)) / (1 + x)
    rarely = value * np.exp(CUT * up) * again_s < FEW_EVENTS
    return np.where(rarely, mean, x / again_s)


def _whole_halves(width: Array) -> Array:
    return np.exp(width**2 / 2) * normal_below_all(width)


def _halves(width: Array) -> Array:
    inside = normal_below_all(CUT - width) - normal_below_all(-width)
    return np.exp(width**2 / 2) * inside + CUT_CHANCE * np.exp(width * CUT)
