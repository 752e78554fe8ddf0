"""A job with a deadline on spot, on demand, and on both in turn."""

from decimal import Decimal
from typing import Any

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Provider
from gpuplan.planner.cost.deadline_ways import deadline_ways
from gpuplan.planner.cost.start_up import start_up_s
from gpuplan.planner.cost.whole_job import whole_job
from gpuplan.planner.plan.parts import Estimated, Stops
from gpuplan.planner.plan.payment import DeadlineWay
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

CATALOGUE = load_catalogue()
HOUR = 3600.0
STEADY = Stops(
    per_hour=0.001,
    per_hour_low=0.0003,
    per_hour_high=0.003,
    checkpoint_bytes=1e10,
    stall_s=10.0,
    restart_s=900.0,
    wait_s=0.0,
)
SPOT = STEADY.model_copy(
    update={"per_hour": 0.05, "per_hour_low": 0.01, "per_hour_high": 0.2, "wait_s": 900.0}
)
TRAINING = Estimated(value=20 * HOUR, low=18 * HOUR, high=22 * HOUR, basis="calibrated")
FACTS: dict[str, Any] = {
    "nodes": 2,
    "spot": SPOT,
    "on_demand": STEADY,
    "spot_usd_per_hour": Decimal(10),
    "on_demand_usd_per_hour": Decimal(30),
    "billing": None,
}


def found(hours: float, **changes: Any) -> dict[str, DeadlineWay]:
    made = deadline_ways(TRAINING, deadline_s=hours * HOUR, **{**FACTS, **changes})
    return {one.way: one for one in made}


def usd_of(way: DeadlineWay) -> float:
    assert way.usd is not None
    return float(way.usd)


def test_the_mix_stands_between_spot_and_on_demand() -> None:
    spot, steady, mix = found(28.0).values()
    assert spot.usd is not None and steady.usd is not None and mix.usd is not None
    assert spot.usd < mix.usd < steady.usd
    assert spot.deadline_probability + 0.01 < mix.deadline_probability
    assert mix.deadline_probability <= steady.deadline_probability + 0.02
    assert (spot.spot_share, steady.spot_share) == (1.0, 0.0)
    assert 0.0 < mix.spot_share < 1.0


@pytest.mark.parametrize("hours", [23.5, 28.0, 40.0])
def test_each_way_has_an_interval_around_what_is_expected(hours: float) -> None:
    for way in found(hours).values():
        assert way.hours_low is not None and way.hours_high is not None
        assert way.usd_low is not None and way.usd_high is not None
        assert 18 < way.hours_low < way.hours < way.hours_high
        assert 0 < way.usd_low < usd_of(way) < way.usd_high
    spot, steady, mix = found(28.0).values()
    assert (spot.usd_low or 0) <= (mix.usd_low or 0) < (steady.usd_low or 0)


def test_with_all_the_time_the_mix_is_spot() -> None:
    ways = found(2000.0)
    mix, spot = ways["spot-then-on-demand"], ways["spot"]
    assert usd_of(mix) == pytest.approx(usd_of(spot), rel=1e-3)
    assert mix.hours == pytest.approx(spot.hours, rel=1e-3)
    for name in ("hours_low", "hours_high", "usd_low", "usd_high"):
        assert float(getattr(mix, name)) == pytest.approx(float(getattr(spot, name)), rel=0.02)


def test_too_late_for_spot_the_mix_is_on_demand() -> None:
    ways = found(22.5)
    mix, steady = ways["spot-then-on-demand"], ways["on-demand"]
    assert mix == steady.model_copy(update={"way": mix.way})


def test_each_way_costs_what_the_whole_job_does() -> None:
    """Start, increment and all: the lines of a bill are rounded to cents."""
    billing = Provider(
        name="seller",
        skypilot_cloud=None,
        marketplace=False,
        billing_increment_s=3600,
        minimum_s=None,
        pue=None,
        hipaa_eligible=None,
        home_jurisdiction=None,
        source="test",
    )
    ways = found(30.0, billing=billing)
    for way, stops, price in (("on-demand", STEADY, 30), ("spot", SPOT, 10)):
        job = whole_job(
            TRAINING,
            nodes=2,
            usd_per_hour=Decimal(price),
            spot_usd_per_hour=None,
            billing=billing,
            stops=stops,
        ).whole
        assert usd_of(ways[way]) == pytest.approx(float(job.usd or 0), abs=0.05)
        assert ways[way].hours == pytest.approx(job.hours)


def test_what_is_not_known_is_unknown_and_what_is_too_late_is_nothing() -> None:
    ways = found(25.0, on_demand_usd_per_hour=None)
    assert (ways["on-demand"].usd, ways["spot-then-on-demand"].usd) == (None, None)
    assert ways["spot"].usd is not None
    assert (ways["on-demand"].usd_low, ways["spot-then-on-demand"].usd_high) == (None, None)
    assert ways["spot-then-on-demand"].hours_low is not None
    assert found(start_up_s() / HOUR) == {}


def test_plans_have_them_where_there_is_a_deadline_and_their_ids_stay(toy: Profile) -> None:
    def plan(**money: Any) -> Plan:
        question = Question(
            work=Work(samples=1e9, global_batch=64),
            machine=Machine(instances=("p4d.24xlarge",), max_nodes=1),
            choices=Choices(recomputes=("none",)),
            money=Money(**money),
        )
        return search(question, toy, CATALOGUE).plans[0]

    late, free = plan(deadline_s=4000 * HOUR), plan()
    assert [one.way for one in late.deadline_ways] == ["spot", "on-demand", "spot-then-on-demand"]
    assert late.whole_job is not None and late.run is not None
    spot, steady, _ = late.deadline_ways
    assert usd_of(steady) == pytest.approx(float(late.whole_job.usd or 0), abs=0.05)
    assert usd_of(spot) == pytest.approx(float(late.whole_job.spot_usd or 0), abs=0.05)
    assert steady.deadline_probability == late.run.deadline_probability
    assert free.deadline_ways == ()
    assert late.id == free.id
    on_spot = plan(deadline_s=4000 * HOUR, purchase="spot")
    assert on_spot.whole_job is not None
    first = usd_of(on_spot.deadline_ways[0])
    assert first == pytest.approx(float(on_spot.whole_job.usd or 0), abs=0.05)
