"""What stopped the user's own runs: counts, and what the priors become with them.

A prior counts as `strength` stops, in as many hours as it has them: k stops in k / rate. Own runs
add theirs (the update of a gamma distribution by a Poisson count), so that the likely rate becomes

    rate x (k + stops) / (k + expected stops)

where the expected stops are those of the prior in the hours that were counted. Its interval is one
of a logarithm, and narrows by the stops alone: 1 / sd² = 1 / sd_prior² + stops. Hours without a
stop move the rate, and leave it known to the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from .priors import Prior, RatePrior, failure_rate, prior, stated
from .rates import Rate
from .spread import DECILE

Market = tuple[str, str, str]
"""Provider, region and accelerator of spot machines."""


@dataclass(frozen=True, kw_only=True)
class CountedStops:
    """Runs of one kind of machine: how long they lasted, and how often something stopped them."""

    runs: int
    hours: float
    """Of all runs together."""
    accelerator_hours: float
    stops: int

    @property
    def accelerators(self) -> int:
        """Accelerators of a run, the mean over the hours; one at least."""
        return max(1, round(self.accelerator_hours / self.hours)) if self.hours > 0 else 1

    def __add__(self, other: CountedStops) -> CountedStops:
        """Return the counts of both."""
        return CountedStops(
            runs=self.runs + other.runs,
            hours=self.hours + other.hours,
            accelerator_hours=self.accelerator_hours + other.accelerator_hours,
            stops=self.stops + other.stops,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnStops:
    """What is known of the user's own runs; `launcher/store/own_stops.py` says what counts."""

    failures: Mapping[str, CountedStops] = field(default_factory=dict)
    """By accelerator: runs on demand, and the losses of machines among them."""
    interruptions: Mapping[Market, CountedStops] = field(default_factory=dict)
    """Runs on spot machines of one market, and how often it took them away."""
    launches: int = 0
    """Launches of which it is known whether they came to train."""
    untrained: int = 0
    """Those that failed before their first step."""


NO_OWN_STOPS = OwnStops()


def with_own_failures(
    rate: RatePrior, own: OwnStops, *, accelerator: str, vendor: str
) -> RatePrior:
    """Return a failure rate of a job, with what own runs on its accelerator say."""
    seen = own.failures.get(accelerator)
    if seen is None:
        return rate
    text = (
        f"your {_runs(seen.runs)} on {accelerator}: {seen.accelerator_hours:,.0f}"
        f" accelerator-hours, {_stops(seen.stops, 'stop')}"
    )
    return _updated(rate, seen, _expected_failures(vendor, seen), text)


def with_own_interruptions(rate: RatePrior, own: OwnStops, market: Market) -> RatePrior:
    """Return a rate of interruptions of a run, with what own runs on its market say."""
    seen = own.interruptions.get(market)
    if seen is None:
        return rate
    provider, region, accelerator = market
    text = (
        f"your {_runs(seen.runs)} on spot {accelerator} of {provider} {region}:"
        f" {seen.hours:,.3g} hours, {_stops(seen.stops, 'interruption')}"
    )
    return _updated(rate, seen, rate.value.per_hour * seen.hours, text)


@lru_cache(1024)
def _updated(rate: RatePrior, seen: CountedStops, expected: float, text: str) -> RatePrior:
    strength = stated("own", "strength_stops")
    grown = (strength + seen.stops) / (strength + expected)
    value = rate.value * grown
    up = _narrowed(rate.high.per_s / rate.value.per_s, seen.stops)
    down = _narrowed(rate.value.per_s / rate.low.per_s, seen.stops)
    return RatePrior(
        value=value,
        low=Rate(value.per_s / down),
        high=Rate(value.per_s * up),
        source=f"{text}, of which the prior expects {expected:.2g}; the prior, which counts as"
        f" {strength:g} stops: {rate.source}",
    )


def _narrowed(ratio: float, stops: int) -> float:
    """Return the factor from the middle to an end of 80 %, once so many stops were counted."""
    sd = math.log(max(1.0, ratio)) / DECILE
    return math.exp(DECILE * sd / math.sqrt(1 + stops * sd**2))


@lru_cache(1024)
def _expected_failures(vendor: str, seen: CountedStops) -> float:
    """Return how many failures the prior expects of runs of their mean size."""
    per_hour = failure_rate(vendor, seen.accelerators).value.per_hour / seen.accelerators
    return per_hour * seen.accelerator_hours


def untrained_text(own: OwnStops) -> str | None:
    """Return how many launches failed before their first step; None where none is known."""
    if not own.launches:
        return None
    return (
        f"{own.untrained} of your {own.launches} launches failed before their first step, which is"
        " the line of failed attempts and in none of these sums"
    )


def failed_attempts(own: OwnStops = NO_OWN_STOPS) -> Prior:
    """Return how many launches end before their first step, for each that trains.

    The prior weighs as many launches that train as it weighs stops (`strength_stops`).
    """
    known = prior("failed_attempts")
    trained = own.launches - own.untrained
    if not own.launches:
        return known
    strength = stated("own", "strength_stops")
    scale = strength / (strength + trained)
    share = (strength * known.value + own.untrained) / (strength + trained)
    return Prior(
        value=share,
        low=share - scale * (known.value - known.low),
        high=share + scale * (known.high - known.value),
        source=f"{own.untrained} of your {own.launches} launches; the prior, which counts as"
        f" {strength:g} launches that train: {known.source}",
    )


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _stops(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
