"""How providers bill time: rounded up to their increment, each bill of a run on its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...catalog.types import Provider
from .paid_whole import LEAST_CHANCE, MICROSECONDS_PER_SECOND

BY_THE_SECOND_S = 1.0
"""Bills in increments no longer are rounded up from the mean: a second is nothing of a job."""
LONG_MINIMUM_S = 300.0
"""The least that a seller bills says nothing where machines take longer than that to start."""
MINIMUM_PARTS = 32
"""Parts into which the time about a long minimum is cut."""
SURELY_LONGER = 4.0
"""Widths of the runs' 80 % interval from their mean, beyond which none is counted."""
ENDS = (0.1, 0.9)
"""Chances of the ends of 80 %."""
FEW_STOPS, MOST_FURTHER_BILLS = 2.0, 10
"""Stops up to which a run's time is taken as independent of them. Runs with more stops take longer:
nine of ten have neither more stops nor more time than nine of ten."""
MOST_STOPS_OF_MEAN = 10
"""Above which the chance of so many stops is nothing, whatever its digits say."""
WIDE_INCREMENTS = 2.0
"""Of the runs between the ends of 80 %, from which on the last increment of a bill is half used on
average: it is to 1e-5 then, by Poisson's sum over a normal distribution."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """For how long the machines of a job run, by which a provider rounds up its bills."""

    spread_s: float
    """Between the ends of 80 % of the runs."""
    stops: float
    """Mean number of stops, after each of which new machines begin a bill of their own."""
    chance_within: Callable[[float], float]
    """Seconds that are billed, start included → the chance that they are no more."""


def billed_seconds(seconds: float, *, increment_s: float | None, minimum_s: float | None) -> float:
    """Return seconds rounded up to what is billed; None where a provider states no such thing."""
    us = _rounded_up_us(_us(seconds), increment_s=increment_s, minimum_s=minimum_s)
    return us / MICROSECONDS_PER_SECOND


def billed_us(us: int, billing: Provider | None) -> int:
    """Return what is billed of so many microseconds."""
    if billing is None:
        return us
    return _rounded_up_us(us, increment_s=billing.billing_increment_s, minimum_s=billing.minimum_s)


def _rounded_up_us(us: int, *, increment_s: float | None, minimum_s: float | None) -> int:
    whole_us = us
    if increment_s:
        increment_us = _us(increment_s)
        whole_us = -(-us // increment_us) * increment_us
    return max(whole_us, _us(minimum_s or 0))


def is_coarse(billing: Provider | None) -> bool:
    """Return whether bills are rounded up by more than is nothing of a job."""
    return billing is not None and (billing.billing_increment_s or 0) > BY_THE_SECOND_S


def has_long_minimum(billing: Provider | None) -> bool:
    """Return whether a seller bills no less than some jobs take."""
    return billing is not None and (billing.minimum_s or 0) > LONG_MINIMUM_S


def needs_lengths(billing: Provider | None) -> bool:
    """Return whether the mean of bills is not the bill of the mean."""
    return is_coarse(billing) or has_long_minimum(billing)


def mean_billed_us(mean_us: int, billing: Provider | None, lengths: Lengths | None) -> int:
    """Return the mean of what is billed, each run's bills rounded up, microseconds.

    Args:
        mean_us: for which a node runs on average.
        billing: the provider, with its increment and minimum.
        lengths: of the runs; None where nothing is known of them, and they take the mean.
    """
    if billing is None or lengths is None or not needs_lengths(billing):
        return billed_us(mean_us, billing)
    if not is_coarse(billing):
        return billed_us(_us(_mean_above_minimum_s(mean_us, billing, lengths)), billing)
    increment_s = billing.billing_increment_s or 0.0
    is_wide = lengths.spread_s > WIDE_INCREMENTS * increment_s
    if is_wide and not billing.minimum_s:
        first_us = mean_us + _us(increment_s / 2)
    else:
        first_us = max(mean_us, _us(_mean_rounded_s(mean_us, billing, lengths)))
    return first_us + more_bills_us(billing, lengths)


def _mean_above_minimum_s(mean_us: int, billing: Provider, lengths: Lengths) -> float:
    """Return the mean of what is billed where runs that are shorter pay a minimum, seconds.

    Runs that go on after a stop on new machines may fall short once more: of jobs on demand so few
    stop within an hour that this is nothing.
    """
    minimum_s, mean_s = float(billing.minimum_s or 0), mean_us / MICROSECONDS_PER_SECOND
    reach_s = SURELY_LONGER * lengths.spread_s
    if mean_s >= minimum_s:
        shortest_s = max(0.0, mean_s - reach_s)
        return mean_s + _area(lengths.chance_within, shortest_s, minimum_s)
    return minimum_s + _area(
        lambda seconds: 1 - lengths.chance_within(seconds), minimum_s, mean_s + reach_s
    )


def _area(chance: Callable[[float], float], from_s: float, to_s: float) -> float:
    """Return the area under chances between two times, by the middles of equal parts; or 0."""
    if to_s <= from_s:
        return 0.0
    part_s = (to_s - from_s) / MINIMUM_PARTS
    return part_s * sum(chance(from_s + (i + 0.5) * part_s) for i in range(MINIMUM_PARTS))


def _mean_rounded_s(mean_us: int, billing: Provider, lengths: Lengths) -> float:
    """Return the mean of a bill, summed over the increments that it may have."""
    increment_s = billing.billing_increment_s or 0.0

    def paid_s(count: int) -> float:
        return max(count * increment_s, billing.minimum_s or 0.0)

    # Nearly all runs take longer than half of the mean.
    count = max(1, int(mean_us / MICROSECONDS_PER_SECOND / 2 // increment_s))
    total_s = paid_s(count)
    chance = 1.0
    while chance > LEAST_CHANCE:
        chance = 1 - lengths.chance_within(count * increment_s)
        total_s += chance * (paid_s(count + 1) - paid_s(count))
        count += 1
    return total_s


def more_bills_us(billing: Provider | None, lengths: Lengths | None) -> int:
    """Return what further bills are rounded up by: half an increment each."""
    if billing is None or lengths is None or not is_coarse(billing):
        return 0
    return _us(lengths.stops * (billing.billing_increment_s or 0.0) / 2)


def bill_ends_us(
    low_us: int, high_us: int, billing: Provider | None, lengths: Lengths | None
) -> tuple[int, int]:
    """Return the bills that one in ten runs and nine in ten do not pass; whole increments.

    Args:
        low_us: for which a machine runs in one of ten runs at most.
        high_us: the same in nine of ten.
        billing: the provider, with its increment and minimum.
        lengths: of the runs; None where nothing is known of them.
    """
    ends_us = billed_us(low_us, billing), billed_us(high_us, billing)
    if billing is None or lengths is None or not is_coarse(billing):
        return ends_us
    if lengths.stops < FEW_STOPS:
        low, high = (
            _end_count(us, chance, billing, lengths)
            for us, chance in zip(ends_us, ENDS, strict=True)
        )
        increment_us = _us(billing.billing_increment_s or 0.0)
        return billed_us(low * increment_us, billing), billed_us(high * increment_us, billing)
    more_us = more_bills_ends_us(billing, lengths)
    return ends_us[0] + more_us[0], ends_us[1] + more_us[1]


def _end_count(us: int, chance: float, billing: Provider, lengths: Lengths) -> int:
    """Return how many increments runs with few stops do not pass with this chance.

    Every further bill is rounded up by one increment more than the run alone, or by none.
    """
    increment_s = billing.billing_increment_s or 0.0
    more = [
        math.exp(-lengths.stops / 2) * (lengths.stops / 2) ** k / math.factorial(k)
        for k in range(MOST_FURTHER_BILLS)
    ]

    def below(count: int) -> float:
        whole = [lengths.chance_within((count - k) * increment_s) for k in range(len(more))]
        return sum(a * b for a, b in zip(more, whole, strict=True))

    count = us // _us(increment_s)
    while count > 1 and below(count - 1) >= chance:
        count -= 1
    while below(count) < chance:
        count += 1
    return count


def more_bills_ends_us(billing: Provider | None, lengths: Lengths | None) -> tuple[int, int]:
    """Return what further bills are rounded up by in runs with few stops and with many.

    One in ten has fewer, and one in ten more. Half of their bills are an increment each.
    """
    if billing is None or lengths is None or not is_coarse(billing):
        return 0, 0
    increment_us = _us(billing.billing_increment_s or 0.0)
    few, many = (_stops_within(chance, lengths.stops) for chance in ENDS)
    return few // 2 * increment_us, -(-many // 2) * increment_us


def _stops_within(chance: float, mean: float) -> int:
    """Return the number of stops that runs do not pass with this chance, by Poisson."""
    count, one = 0, math.exp(-mean)
    below = one
    while below < chance:
        count += 1
        one *= mean / count
        below += one
        if count > MOST_STOPS_OF_MEAN * (mean + 1):
            break
    return count


def _us(seconds: float) -> int:
    return round(seconds * MICROSECONDS_PER_SECOND)
