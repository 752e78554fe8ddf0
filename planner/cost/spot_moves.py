"""How a spot price moves while a job runs, by the prices that were seen, and what that costs. Pure.

The price of today is taken as the likely one. Prices of the same machines on later days over those
on earlier ones, no further apart than the job takes, say how far it may move; it moves whatever the
steps take, so that the two add up in quadrature of their logarithms, as independent factors do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal

import numpy as np

from ...catalog.units import HOURS_PER_DAY
from ..goodput.spread import Spread
from ..plan.parts import SpotPriceRange, WholeJob
from .run_cost import CENT

LEAST_DAYS = 5
"""Days with a price below which nothing is said: two prices are no distribution."""
PRICE_POINTS = 32
"""Prices over which a chance is averaged: its error is below half a point."""
ENDS = (10, 90)
"""Percentiles that 80 % lie between."""


def spot_price_range(prices: Mapping[date, Decimal], hours: float) -> SpotPriceRange | None:
    """Return how far a price moves within so many hours; None where too few days are known.

    Args:
        prices: US dollars an hour of one instance, by the day on which they were seen.
        hours: of the job. Days that follow one another are compared however short it is.
    """
    days = sorted(prices)
    if len(days) < LEAST_DAYS:
        return None
    gaps = np.diff([day.toordinal() for day in days])
    longest = max(hours / HOURS_PER_DAY, float(np.max(gaps)))
    ratios = [
        float(prices[later] / prices[earlier])
        for number, earlier in enumerate(days)
        for later in days[number + 1 :]
        if (later - earlier).days <= longest
    ]
    low, high = (float(one) for one in np.percentile(ratios, ENDS))
    return SpotPriceRange(
        low=min(1.0, low),
        high=max(1.0, high),
        prices=len(days),
        days=(days[-1] - days[0]).days,
    )


def with_moving_price(job: WholeJob, moves: SpotPriceRange) -> WholeJob:
    """Return a job on spot machines whose interval holds how their price moves."""
    if job.usd is None or job.usd_low is None or job.usd_high is None or not job.usd_low:
        return job
    low, high = moved_ends(job.usd, job.usd_low, job.usd_high, moves)
    return job.model_copy(update={"usd_low": low, "usd_high": high, "spot_price": moves})


def moved_ends(
    likely: Decimal, low: Decimal, high: Decimal, moves: SpotPriceRange
) -> tuple[Decimal, Decimal]:
    """Return the ends of an interval of dollars, above 0, that holds how the price moves too."""
    usd = float(likely)
    down = math.hypot(math.log(usd / float(low)), math.log(moves.low))
    up = math.hypot(math.log(float(high) / usd), math.log(moves.high))
    return (
        Decimal(usd * math.exp(-down)).quantize(CENT),
        Decimal(usd * math.exp(up)).quantize(CENT),
    )


def chance_while_moving(
    chance_of: Callable[[float], float], paid_s: float, moves: SpotPriceRange
) -> float:
    """Return the chance that a job keeps to a budget while the price of its machines moves.

    The mean over prices, spread as those that were seen are, of the chance at each: at half the
    price a budget pays for twice the time.

    Args:
        chance_of: seconds → the chance that the job takes no longer.
        paid_s: that the budget pays for at today's price.
        moves: of the price.
    """
    factors = Spread.of(1.0, moves.low, moves.high).points(PRICE_POINTS)
    return math.fsum(chance_of(paid_s / one) for one in factors) / PRICE_POINTS
