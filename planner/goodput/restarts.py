"""A run that is stopped at random, goes back to its checkpoint and continues: mean and variance.

Training of `work_s` seconds is cut into `segments` equal parts, each followed by a checkpoint that
holds the training up for `stall_s`. Stops come as a Poisson process, with the machines' time as its
clock. After one there may be no machines for a while (`wait_s` on average, exponential, not
billed); then everything starts again (`restart_s`, billed, and it may be stopped too), and the part
begins anew. With rate λ, part s = work / segments + stall, restart r:

    E[time of a part] = (e^(λs) - 1) · e^(λr) · (1/λ + wait)

the exact exponential form (Daly 2006, eq. 13, with waits; "A higher order estimate of the optimum
checkpoint interval for restart dumps"). Its best interval does not depend on the restart:
(1 - λτ) · e^(λ(τ + stall)) = 1. Young's √(2 · stall / λ) is its first order, for λτ « 1.

Where a cloud gives notice of a stop in time, the runner saves a checkpoint: such a stop loses no
work, as one at the very end of a part does. With a share v of such stops a part counts as (1 - v)
of its length, and there are 1 / (1 - v) times as many: exact at v = 0 and as v → 1, and between
them to the first order of λs.

Numbers are floats with `maths=math`, or arrays of one shape with `maths=numpy`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

MOST_INTERVAL_S = 1800.0
"""Longest time between checkpoints that is proposed: where stops are rare the best interval is
days, and nobody accepts to lose days to what no rate counts, such as a mistake of their own."""
FEW_EVENTS = 1e-4
"""Below so many expected events a truncated exponential is a uniform distribution: its closed form
would lose its digits to cancellation, and the next terms are smaller than 1e-5 of the first."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What stops a run, and what a stop and a checkpoint take."""

    rate_per_s: Any
    stall_s: Any
    restart_s: Any
    wait_s: Any = 0.0
    saved_share: Any = 0.0
    """Of the stops: those before which a notice saves the work, below 1."""
    evaluation: Any = None
    """What is known of evaluations (`plan.parts.Evaluation`); None: they are assumed."""


@dataclass(frozen=True, kw_only=True)
class Elapsed:
    """Time from the first step to the last, with stops."""

    mean_s: Any
    variance_s2: Any
    """Of the time, at exactly this rate and step time."""
    waited_s: Any
    """Mean part of it without machines, which nobody bills."""
    stops: Any
    """Mean number of stops."""
    none_chance: Any
    """Chance that nothing stops it."""


def best_interval_s(rate_per_s: float, stall_s: float) -> float:
    """Return the training time between checkpoints for which a run ends soonest; inf without stops.

    Newton's method on λτ + λ·stall + ln(1 - λτ) = 0 from the right of its root, where the function
    is concave and falls, so that it comes down to the root without passing it.
    """
    if rate_per_s == 0:
        return math.inf
    stalled = rate_per_s * stall_s
    if stalled == 0:
        return 0.0
    x = min(math.sqrt(2 * stalled), -math.expm1(-1 - stalled))
    for _ in range(20):
        value = x + stalled + math.log1p(-x)
        step = value * (1 - x) / -x
        x -= step
        if abs(step) <= 1e-12 * x:
            break
    return x / rate_per_s


def again_s(
    rate_per_s: Any,
    stall_s: Any,
    restart_s: Any,
    wait_s: Any,
    maths: Any = math,
    saved_share: Any = 0.0,
) -> Any:
    """Return the time within which a stop that follows a stop makes it dearer, on average.

    The mean time of a part, over its length s, is 1 + λ·a + λ²·b + …, with a = s/2 + restart + wait
    and b as below; it grows with the rate as λ·e^(λ·b/a) does.
    """
    least = min if maths is math else maths.minimum
    part_s = least(MOST_INTERVAL_S, maths.sqrt(2 * stall_s / rate_per_s)) + stall_s
    part_s = part_s * (1 - saved_share)
    once_s = part_s / 2 + restart_s + wait_s
    twice = part_s**2 / 6 + restart_s**2 / 2 + part_s * restart_s / 2
    return (twice + wait_s * (part_s / 2 + restart_s)) / once_s


def segments_of(work_s: float, interval_s: float) -> int:
    """Return into how many parts a run is cut: whole ones, as long as the interval or nearly so."""
    return max(1, round(work_s / interval_s)) if interval_s else 1


def mean_s(work_s: Any, segments: Any, of: Conditions, maths: Any = math) -> Any:
    """Return the mean time from the first step to the last, seconds."""
    lost_share = 1 - of.saved_share
    part_s, segments = (work_s / segments + of.stall_s) * lost_share, segments / lost_share
    rate = of.rate_per_s
    stops = maths.expm1(rate * part_s) * maths.exp(rate * of.restart_s)
    return segments * stops * (1 / rate + of.wait_s)


def elapsed(work_s: Any, segments: Any, of: Conditions, maths: Any = math) -> Elapsed:
    """Return mean, variance and stops of the time from the first step to the last.

    Args:
        work_s: training time without stops and checkpoints.
        segments: parts, each with a checkpoint at its end.
        of: with a rate above 0; rates may be as small as 1e-300.
        maths: math for floats, numpy for arrays.
    """
    rate, restart_s, wait_s = of.rate_per_s, of.restart_s, of.wait_s
    lost_share = 1 - of.saved_share
    part_s, segments = (work_s / segments + of.stall_s) * lost_share, segments / lost_share
    again_s = restart_s + part_s
    stopped = -maths.expm1(-rate * part_s)
    # After a stop: attempts of restart and part until one is not stopped.
    failed = maths.expm1(rate * again_s)
    lost_s, lost_s2 = _lost(rate, again_s, maths)
    turn_s = lost_s + wait_s
    turn_variance = lost_s2 + wait_s**2
    rest_s = again_s + failed * turn_s
    rest_variance = failed * turn_variance + failed * (1 + failed) * turn_s**2
    first_s, first_s2 = _lost(rate, part_s, maths)
    after_s = first_s + wait_s + rest_s
    after_square = first_s2 + wait_s**2 + rest_variance + after_s**2
    mean = (1 - stopped) * part_s + stopped * after_s
    variance = (1 - stopped) * part_s**2 + stopped * after_square - mean**2
    stops = stopped * (1 + failed)
    return Elapsed(
        mean_s=segments * mean,
        variance_s2=segments * abs(variance),
        waited_s=segments * stops * wait_s,
        stops=segments * stops,
        none_chance=maths.exp(-rate * part_s * segments),
    )


def _lost(rate: Any, span_s: Any, maths: Any) -> tuple[Any, Any]:
    """Return mean and variance of the time until a stop that comes within a span."""
    if maths is math:
        if rate * span_s < FEW_EVENTS:
            return span_s / 2, span_s**2 / 12
        return _truncated(rate, span_s, maths)
    few = rate * span_s < FEW_EVENTS
    # The closed form is computed everywhere; where it is not taken, for a span of one event.
    mean, variance = _truncated(rate, maths.where(few, 1 / rate, span_s), maths)
    return maths.where(few, span_s / 2, mean), maths.where(few, span_s**2 / 12, variance)


def _truncated(rate: Any, span_s: Any, maths: Any) -> tuple[Any, Any]:
    """Return mean and variance of an exponential distribution below `span_s`."""
    odds = 1 / maths.expm1(rate * span_s)
    mean = 1 / rate - span_s * odds
    return mean, abs(1 / rate**2 - span_s**2 * odds * (1 + odds))
