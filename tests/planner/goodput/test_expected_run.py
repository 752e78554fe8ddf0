"""What a run is expected to take, its interval, and the chance of ending in time."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from answers import make_stops
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.goodput.expected_run import (
    as_conditions,
    elapsed_s,
    expected_run,
    mean_training_s,
    training_s_in,
)
from gpuplan.planner.goodput.simulation import drawn_factors
from gpuplan.planner.goodput.spread import Spread
from gpuplan.planner.plan.parts import Estimated, Stops

HOUR = 3600.0


def a_run(seconds: float, spread: float = 1.1) -> Estimated:
    """Return a training time with an interval of this factor on either side."""
    return Estimated(value=seconds, low=seconds / spread, high=seconds * spread, basis="calibrated")


def some_stops(per_hour: float, *, factor: float = 3.0, wait_s: float = 0.0) -> Stops:
    """Return stops whose rate is known to this factor."""
    return make_stops(
        per_hour=per_hour,
        per_hour_low=per_hour / factor,
        per_hour_high=per_hour * factor,
        wait_s=wait_s,
    )


rates = st.floats(1e-6, 0.5)


@given(hours=st.floats(0.1, 5000), per_hour=rates, wait_s=st.floats(0, 3600))
def test_the_lines_are_the_mean_and_the_search_asks_for_the_same(
    hours: float, per_hour: float, wait_s: float
) -> None:
    stops = some_stops(per_hour, wait_s=wait_s)
    run = expected_run(a_run(hours * HOUR), stops)
    lines = run.training_s + run.beside_s + run.checkpoints_s + run.stopped_s + run.waited_s
    assert run.elapsed_s == pytest.approx(lines)
    searched_s = elapsed_s(mean_training_s(a_run(hours * HOUR)), as_conditions(stops))
    assert searched_s == pytest.approx(run.elapsed_s, rel=1e-9)
    assert min(run.beside_s, run.checkpoints_s, run.waited_s) >= 0
    assert run.stopped_s >= -1e-6 * run.training_s


@given(value=st.floats(1, 1e8), up=st.floats(1, 3), down=st.floats(1, 3))
def test_what_steps_take_on_average_is_the_mean_of_their_interval(
    value: float, up: float, down: float
) -> None:
    """Closed form beside draws; no less than the likely time where it reaches as far up as down."""
    mean_s = mean_training_s(
        Estimated(value=value, low=value / down, high=value * up, basis="analytic")
    )
    spread = Spread.of(value, value / down, value * up)
    drawn = drawn_factors([spread], 20_000, np.random.default_rng(0), cut=np.inf)
    assert mean_s == pytest.approx(value * float(drawn.mean()), rel=2e-3)
    if up >= down:
        assert mean_s >= value * (1 - 1e-12)
    exact = Estimated(value=value, low=value, high=value, basis="analytic")
    assert mean_training_s(exact) == pytest.approx(value, rel=1e-12)


@given(value=st.floats(1, 1e8), factor=st.floats(1, 3))
def test_of_an_interval_alike_to_both_sides_it_is_that_of_a_log_normal(
    value: float, factor: float
) -> None:
    sigma = math.log(factor) / NormalDist().inv_cdf(0.9)
    mean_s = mean_training_s(a_run(value, factor))
    assert mean_s == pytest.approx(value * math.exp(sigma**2 / 2), rel=1e-9)


@given(hours=st.floats(0.1, 5000), per_hour=rates)
def test_the_interval_holds_its_ends_with_their_chances(hours: float, per_hour: float) -> None:
    run = expected_run(a_run(hours * HOUR), some_stops(per_hour))
    assert run.low_s < run.high_s
    assert run.chance_within(run.low_s) == pytest.approx(0.1, abs=0.002)
    assert run.chance_within(run.high_s) == pytest.approx(0.9, abs=0.002)
    assert run.chance_within(0.0) == 0.0
    assert run.chance_within(100 * run.high_s) > 0.99


@given(paid_h=st.floats(0.01, 5000), per_hour=rates)
def test_what_fits_into_a_time_takes_that_time(paid_h: float, per_hour: float) -> None:
    of = as_conditions(some_stops(per_hour))
    trained_s = training_s_in(paid_h * HOUR, of)
    assert 0 < trained_s <= paid_h * HOUR
    assert elapsed_s(trained_s, of) <= paid_h * HOUR
    assert elapsed_s(trained_s, of) >= 0.99 * paid_h * HOUR or trained_s < 60
    assert training_s_in(0.0, of) == 0.0


def test_more_stops_take_longer_and_are_less_sure() -> None:
    calm, rough = (expected_run(a_run(100 * HOUR), some_stops(rate)) for rate in (1e-4, 0.1))
    assert rough.elapsed_s > calm.elapsed_s
    assert rough.high_s / rough.low_s > calm.high_s / calm.low_s
    assert rough.chance_within(105 * HOUR) < calm.chance_within(105 * HOUR)
    assert rough.interval_s < calm.interval_s
