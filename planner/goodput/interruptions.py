"""How often a provider takes spot machines away, and with how much warning.

Machines of one type and zone go together (more than 92 % of co-interruptions fall within three
minutes), so that a run on N of them has the rate of one, not N times it.
"""

from __future__ import annotations

import math
from functools import cache

from ...catalog.terms.interruptions import InterruptionRow, interruption_of
from ...catalog.types import EvictionRow
from .priors import RatePrior, prior, stated
from .rates import HourlyChance, MonthlyShare, Rate
from .spread import Spread, normal_below

LEAST_SHARE = 0.005
"""Of the lowest band, "less than 5 % a month": its low end is not never."""
MOST_SHARE = 0.9
"""Of the highest band, "more than 20 %", which has no end: 0.9 a month is one stop in 13 days."""
MOST_CHANCE = 0.5
"""Of the highest band per hour, "20+ %", which has no end: one stop in 1.4 hours. Assumed, as the
end of the monthly band is: nobody trains where machines live less long."""


def interruption_rate(
    provider: str, region: str, instance_type: str, eviction: EvictionRow | None = None
) -> RatePrior:
    """Return how often spot machines of a type are taken away from a run in one zone.

    The seller's own band, its geometric middle as the value: a chance per hour (Azure, where the
    user has refreshed it) or a share per month (AWS Spot Advisor). Elsewhere a wide prior, whose
    source says that it is assumed.
    """
    if eviction is not None:
        return _of_hourly_band(eviction)
    return _without_refresh(provider, region, instance_type)


@cache
def _without_refresh(provider: str, region: str, instance_type: str) -> RatePrior:
    row = interruption_of(provider, region, instance_type)
    if row is not None:
        return _of_band(row)
    assumed = prior("spot")
    return RatePrior(
        value=Rate.hourly(assumed.value),
        low=Rate.hourly(assumed.low),
        high=Rate.hourly(assumed.high),
        source=f"spot interruptions {assumed.source}",
    )


def _of_band(row: InterruptionRow) -> RatePrior:
    low = MonthlyShare(max(row.monthly_low, LEAST_SHARE)).rate()
    high = MonthlyShare(min(row.monthly_high, MOST_SHARE)).rate()
    return RatePrior(
        value=Rate(math.sqrt(low.per_s * high.per_s)), low=low, high=high, source=row.source
    )


def _of_hourly_band(row: EvictionRow) -> RatePrior:
    """Return the rate of a band per hour; the low end of the lowest one, 0 %, is not never."""
    least = Rate.hourly(prior("spot").low)
    low = max(least, HourlyChance(row.hourly_low).rate())
    high = HourlyChance(min(row.hourly_high, MOST_CHANCE)).rate()
    return RatePrior(
        value=Rate(math.sqrt(low.per_s * high.per_s)),
        low=low,
        high=high,
        source=f"{row.hourly_low:.0%} to {_end(row)} an hour: {row.source}, {row.asked_on}",
    )


def _end(row: EvictionRow) -> str:
    return "more" if row.hourly_high >= 1 else f"{row.hourly_high:.0%}"


def notice_s(provider: str) -> float | None:
    """Return how long before its end a provider warns a spot machine; None where none is stated."""
    try:
        return stated("notice", provider)
    except KeyError:
        return None


def saved_chance(provider: str, *, until_copied_s: float, bytes_per_node: float) -> float:
    """Return the chance that a notice saves what was trained; 0 where a provider gives none.

    It comes, is seen, and the time that is left then holds the write. How fast that is, is known as
    a range, so that a checkpoint that just fits is saved in half of the cases.

    Args:
        provider: who sells the machines.
        until_copied_s: from the notice until training has stopped and the state is on the host.
        bytes_per_node: that a node then writes.
    """
    warned_s = notice_s(provider)
    if warned_s is None:
        return 0.0
    left_s = warned_s - stated("notice", "seen_s") - until_copied_s
    if left_s <= 0:
        return 0.0
    disk = prior("disk")
    spread = Spread.of(disk.value, disk.low, disk.high)
    over = math.log(max(1.0, bytes_per_node) / left_s / disk.value)
    width = spread.up if over > 0 else spread.down
    return stated("notice", "comes_share") * normal_below(-over / width)
