"""Whole terms and capacity blocks: what a job pays, by hand and for any lengths."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.terms.blocks import block_days, block_lost_s
from gpuplan.catalog.terms.terms_of_offer import Term
from gpuplan.planner.cost.paid_whole import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, PaidWhole

HOUR = 3600.0
AWS = PaidWhole.of(
    Term(
        years=Decimal(182) / 365,
        usd_per_hour=Decimal(30),
        price_basis="pricebook",
        source="your pricebook",
        block_days=block_days("aws"),
        lost_s=block_lost_s("aws"),
    )
)


def test_aws_sells_days_up_to_two_weeks_and_then_weeks() -> None:
    days = block_days("aws")
    assert days[:14] == tuple(range(1, 15)) and days[14:16] == (21, 28) and days[-1] == 182
    assert block_lost_s("aws") == 1800 and block_days("gcp") == ()


@pytest.mark.parametrize(
    ("hours", "days", "blocks"),
    [
        (1, 1, 1),
        (23.5, 1, 1),
        # Machines are ended half an hour before the end.
        (23.6, 2, 1),
        (14 * 24 - 0.5, 14, 1),
        (14 * 24, 21, 1),
        (181 * 24, 182, 1),
        (182 * 24, 183, 2),
    ],
)
def test_a_job_rents_the_shortest_block_it_fits_into(hours: float, days: int, blocks: int) -> None:
    assert AWS.paid_s(hours * HOUR) == days * SECONDS_PER_DAY
    assert AWS.count(hours * HOUR) == blocks


@given(
    lengths=st.lists(st.integers(2, 400), min_size=1, max_size=8, unique=True).map(sorted),
    lost_h=st.floats(0, 1),
    hours=st.floats(0.01, 3000),
)
def test_what_is_paid_is_enough_and_what_it_lets_run_is_paid(
    lengths: list[int], lost_h: float, hours: float
) -> None:
    whole = PaidWhole(lengths_s=tuple(one * HOUR for one in lengths), lost_s=lost_h * HOUR)
    paid_s = whole.paid_s(hours * HOUR)
    assert whole.usable_s(paid_s) >= hours * HOUR - 1e-3
    assert whole.paid_s(whole.usable_s(paid_s) - 1e-3) <= paid_s
    assert whole.usable_s(paid_s - 1) <= whole.usable_s(paid_s)


@pytest.mark.parametrize("hourly_share", [None, Decimal("1.6")], ids=["more blocks", "by the hour"])
@pytest.mark.parametrize("expected_h", [10.0, 23.0, 47.0, 200.0, 335.0])
def test_the_mean_bill_is_that_of_runs_drawn_one_by_one(
    hourly_share: Decimal | None, expected_h: float
) -> None:
    """Runs buy their block first, and whatever they then need: the bills are counted by hand."""
    rng = np.random.default_rng(13)
    hours = expected_h * np.exp(0.25 * rng.standard_normal(20_000) - 0.25**2 / 2)
    whole = replace(AWS, hourly_share=hourly_share)
    days = np.array([*range(1, 15), *range(21, 183, 7)])
    planned = days[np.argmax(24 * days - 0.5 >= expected_h)]
    over_h = np.maximum(0.0, hours - (24 * planned - 0.5))
    more_days = np.where(over_h > 0, days[np.argmax(24 * days - 0.5 >= over_h[:, None], axis=1)], 0)
    more_h = 24 * more_days if hourly_share is None else float(hourly_share) * over_h
    us = 3600 * MICROSECONDS_PER_SECOND
    bills = [whole.billed_us(round(one * us), planned_us=round(expected_h * us)) for one in hours]
    assert np.array(bills) / us == pytest.approx(24 * planned + more_h, abs=1e-6)
    further = whole.after_planned(
        round(expected_h * us), lambda seconds: float((hours > seconds / HOUR).mean())
    )
    mean_us = whole.paid_us(round(expected_h * us)) + further.paid_us
    assert further.beyond_us / us == pytest.approx(
        0 if hourly_share is None else float(over_h.mean()), rel=2e-2, abs=1e-3
    )
    assert mean_us / us == pytest.approx(float(np.mean(24 * planned + more_h)), rel=2e-3)


YEAR = PaidWhole(lengths_s=(8760 * HOUR,), hourly_share=Decimal("1.6"))


@pytest.mark.parametrize(
    ("years", "terms"),
    [
        # A job has one at least, else its machines are on demand.
        (0.1, 1),
        (1.0, 1),
        # 0.02 years on demand cost 0.032 of a term; of 0.625 years on, another term costs less.
        (1.02, 1),
        (1.62, 1),
        (1.63, 2),
        (2.3, 2),
        (2.7, 3),
    ],
)
def test_the_rest_of_a_job_is_paid_by_the_hour_where_that_costs_less(
    years: float, terms: int
) -> None:
    seconds = years * 8760 * HOUR
    assert YEAR.count(seconds) == terms
    assert YEAR.paid_s(seconds) == terms * 8760 * HOUR
    us = round(seconds * MICROSECONDS_PER_SECOND)
    paid_us = YEAR.paid_us(us) + YEAR.after_planned(us).paid_us
    assert paid_us == YEAR.billed_us(us, planned_us=us)
    # No other number of terms costs less.
    year_us = 8760 * 3600 * MICROSECONDS_PER_SECOND
    ways = (one * year_us + max(0, us - one * year_us) * Decimal("1.6") for one in range(1, 5))
    assert paid_us == pytest.approx(float(min(ways)), abs=1)
    # Where no price of an hour is known, or a limit ends the run, whole terms alone are paid.
    assert replace(YEAR, hourly_share=None).count(seconds) == max(1, np.ceil(years))
    assert replace(YEAR, goes_on=False).count(seconds) == max(1, np.ceil(years))


def test_what_goes_beyond_on_average_is_no_less_than_how_far_the_mean_does() -> None:
    """Times that are known exactly are a step, which a sum at points would lose a part of."""
    us = round(1.02 * 8760 * 3600) * MICROSECONDS_PER_SECOND
    exactly = YEAR.after_planned(us, lambda seconds: float(seconds < us / MICROSECONDS_PER_SECOND))
    assert exactly == YEAR.after_planned(us)
    assert exactly.beyond_us == us - 8760 * 3600 * MICROSECONDS_PER_SECOND
