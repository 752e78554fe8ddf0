"""How a spot price moves while a job runs: by hand, and never a narrower interval."""

import math
from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.cost.spot_moves import (
    chance_while_moving,
    spot_price_range,
    with_moving_price,
)
from gpuplan.planner.plan.parts import SpotPriceRange, WholeJob
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.machines.offers import NO_SPOT_PRICES, SpotPrices
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

FIRST = date(2026, 11, 1)


def prices(*usd: str, every: int = 1) -> dict[date, Decimal]:
    return {FIRST + timedelta(days=every * i): Decimal(one) for i, one in enumerate(usd)}


def job(usd: str, low: str, high: str) -> WholeJob:
    return WholeJob(
        hours=20,
        hours_low=18,
        hours_high=25,
        usd=Decimal(usd),
        usd_low=Decimal(low),
        usd_high=Decimal(high),
    )


def test_the_ratios_of_days_no_further_apart_than_the_job_are_its_range() -> None:
    # Calculator: neighbours are 2, 0.5, 2, 0.5; their 10th and 90th percentiles 0.5 and 2.
    found = spot_price_range(prices("1", "2", "1", "2", "1"), hours=5)
    assert found == SpotPriceRange(low=0.5, high=2.0, prices=5, days=4)
    # Two days more are compared over 48 hours: 1, 1 and 1 beside them.
    found = spot_price_range(prices("1", "2", "1", "2", "1"), hours=48)
    assert found == SpotPriceRange(low=0.5, high=2.0, prices=5, days=4)
    rising = spot_price_range(prices("1", "1.1", "1.21", "1.331", "1.4641"), hours=1)
    assert rising is not None and (rising.low, rising.high) == (1.0, pytest.approx(1.1))


def test_few_days_say_nothing_and_days_far_apart_are_neighbours() -> None:
    assert spot_price_range(prices("1", "2", "3", "4"), hours=100) is None
    found = spot_price_range(prices("1", "2", "1", "2", "1", every=30), hours=1)
    assert found is not None and (found.high, found.days) == (2.0, 120)


def test_price_and_time_add_up_as_independent_factors() -> None:
    moves = SpotPriceRange(low=0.8, high=1.5, prices=9, days=60)
    found = with_moving_price(job("100", "90", "120"), moves)
    # Calculator: exp(sqrt(ln(1.2)^2 + ln(1.5)^2)) = 1.5598; below, with 0.9 and 0.8, 0.7813.
    assert (found.usd, found.usd_low, found.usd_high) == (
        Decimal(100),
        Decimal("78.13"),
        Decimal("155.98"),
    )
    assert found.spot_price == moves


@given(
    usd=st.lists(st.decimals("0.01", "99", places=2), min_size=5, max_size=20),
    hours=st.floats(0.1, 2000),
)
def test_an_interval_only_grows(usd: list[Decimal], hours: float) -> None:
    moves = spot_price_range(prices(*map(str, usd)), hours)
    assert moves is not None and 0 < moves.low <= 1 <= moves.high < math.inf
    before = job("100", "90", "120")
    after = with_moving_price(before, moves)
    assert after.usd_low is not None and after.usd_high is not None
    assert after.usd_low <= 90 and after.usd_high >= 120


def test_a_budget_is_kept_to_as_often_as_the_price_and_the_time_let_it() -> None:
    """By hand: a job of exactly 10 h and a budget for 10 h: kept to where the price has fallen."""
    moves = SpotPriceRange(low=0.5, high=2.0, prices=9, days=60)

    def exactly(hours: float) -> float:
        return float(hours >= 10)

    assert chance_while_moving(exactly, 10.0, moves) == pytest.approx(0.5)
    # 80 % of the prices are between half and twice today's: 20 h are enough in 9 of 10 cases.
    assert chance_while_moving(exactly, 20.0, moves) == pytest.approx(0.9, abs=0.02)
    assert chance_while_moving(exactly, 5.0, moves) == pytest.approx(0.1, abs=0.02)
    steady = SpotPriceRange(low=1.0, high=1.0, prices=9, days=60)
    assert chance_while_moving(lambda hours: hours / 40, 10.0, steady) == pytest.approx(0.25)


def test_the_plan_of_a_search_holds_the_moves_in_its_interval_and_in_its_chance(
    toy: Profile,
) -> None:
    place = ("aws", "us-east-2", "p4d.24xlarge")

    def plan(spot_prices: SpotPrices, budget_usd: Decimal | None = None) -> Plan:
        question = Question(
            work=Work(samples=1e9, global_batch=64),
            machine=Machine(instances=(place[2],), regions=(place[1],), max_nodes=1),
            choices=Choices(recomputes=("none",)),
            money=Money(purchase="spot", budget_usd=budget_usd),
        )
        return search(question, toy, load_catalogue(), spot_prices=spot_prices).plans[0]

    free = plan({}).whole_job
    assert free is not None and free.usd is not None
    seen: SpotPrices = {place: prices("10", "14", "9", "15", "10", "13")}
    steady, moving = (plan(one, Decimal("1.2") * free.usd) for one in (NO_SPOT_PRICES, seen))
    assert steady.whole_job is not None and moving.whole_job is not None
    assert moving.whole_job.usd == steady.whole_job.usd and moving.id == steady.id
    assert moving.whole_job.spot_price is not None and steady.whole_job.spot_price is None
    assert (moving.whole_job.usd_high or 0) > (steady.whole_job.usd_high or 0)
    assert steady.run is not None and moving.run is not None
    before, after = steady.run.budget_probability, moving.run.budget_probability
    assert before is not None and after is not None
    assert abs(after - 0.5) < abs(before - 0.5)


def test_a_job_without_a_price_stays_as_it_is() -> None:
    unknown = WholeJob(hours=1, hours_low=1, hours_high=1, usd=None, usd_low=None, usd_high=None)
    moves = SpotPriceRange(low=0.8, high=1.5, prices=9, days=60)
    assert with_moving_price(unknown, moves) == unknown
