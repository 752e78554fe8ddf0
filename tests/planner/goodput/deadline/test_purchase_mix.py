"""Spot, on demand, and the launcher's mix of both: against a simulation, and in plain cases."""

from dataclasses import replace

import numpy as np
import pytest
from answers import make_stops
from simulated_runs import a_case, compared_mixes

from gpuplan.planner.goodput.deadline.purchase_mix import Purchase, ways
from gpuplan.planner.goodput.expected_run import expected_run
from gpuplan.planner.plan.parts import Estimated

HOUR = 3600.0
STEADY = make_stops(stall_s=10.0, restart_s=900.0)
SPOT = STEADY.model_copy(
    update={"per_hour": 0.02, "per_hour_low": 0.005, "per_hour_high": 0.08, "wait_s": 600.0}
)
PLAN = Purchase(
    training_s=Estimated(value=20 * HOUR, low=18 * HOUR, high=23 * HOUR, basis="calibrated"),
    spot=SPOT,
    on_demand=STEADY,
    spot_usd_per_hour=10.0,
    on_demand_usd_per_hour=25.0,
    deadline_s=25 * HOUR,
    slowest_restart_s=1920.0,
)


@pytest.mark.parametrize("as_launched", [False, True], ids=["steps", "with all that takes time"])
@pytest.mark.parametrize(
    ("count", "runs"),
    [(24, 2000), pytest.param(125, 4000, marks=[pytest.mark.slow, pytest.mark.repeats])],
    ids=["24 cases", "125 cases"],
)
def test_the_mix_is_near_the_simulation(count: int, runs: int, as_launched: bool) -> None:
    rng = np.random.default_rng(17)
    cases = [a_case(1 if i % 2 else int(rng.integers(2, 6)), rng) for i in range(count)]
    found = compared_mixes(cases, runs, rng, as_launched=as_launched)
    assert np.mean([one.moved for one in found]) > 0.02, "hardly any run moves"
    for name, bound in (("elapsed", 0.10), ("usd", 0.10), ("chance", 0.03)):
        off = sorted(abs(getattr(one, name)) for one in found)
        print(f"{name}: worst {off[-1]:.3f}, 95th percentile {off[int(0.95 * count)]:.3f}")
        assert off[-1] <= bound, max(found, key=lambda one: abs(getattr(one, name)))
    for name in ("hours_within", "usd_within"):
        covered = sorted(getattr(one, name) for one in found)
        print(f"{name}: {covered[0]:.3f} to {covered[-1]:.3f}")
        assert 0.76 <= covered[0] <= covered[-1] <= 0.84


def test_the_mix_is_surer_than_spot_and_cheaper_than_on_demand() -> None:
    found = ways(PLAN)
    assert found.mix.deadline_chance > found.spot.deadline_chance + 0.01
    assert found.mix.usd is not None
    assert found.on_demand.usd is not None
    assert found.mix.usd < found.on_demand.usd
    assert found.mix.spot_s > found.mix.on_demand_s > 0


def test_spot_and_on_demand_are_the_expected_runs() -> None:
    found = ways(PLAN)
    for way, stops, price in ((found.spot, SPOT, 10.0), (found.on_demand, STEADY, 25.0)):
        run = expected_run(PLAN.training_s, stops)
        assert way.elapsed_s == run.elapsed_s
        assert way.usd == pytest.approx(run.billed_s / HOUR * price)
        assert way.deadline_chance == run.chance_within(25 * HOUR)


def test_without_time_for_two_starts_it_begins_on_demand() -> None:
    late = ways(replace(PLAN, deadline_s=23.5 * HOUR))
    assert late.mix.spot_s == 0
    assert late.mix.deadline_chance == pytest.approx(late.on_demand.deadline_chance, abs=0.02)


def test_with_all_the_time_it_is_spot() -> None:
    calm = ways(replace(PLAN, deadline_s=2000 * HOUR))
    assert calm.mix.deadline_chance == pytest.approx(1.0, abs=1e-6)
    assert calm.mix.on_demand_s == pytest.approx(0.0, abs=1.0)
    assert calm.mix.spot_s == pytest.approx(calm.spot.spot_s, rel=0.05)


def test_a_price_that_is_not_known_is_not_counted_as_0() -> None:
    found = ways(replace(PLAN, spot_usd_per_hour=None))
    assert (found.spot.usd, found.mix.usd) == (None, None)
    assert found.on_demand.usd is not None
