"""Runs drawn event by event, and the closed form held against them."""

from collections.abc import Iterator

import numpy as np
import pytest
from simulated_runs import Case, Compared, a_case, compared

from gpuplan.planner.goodput.simulation import (
    Deadline,
    Runs,
    drawn_factors,
    simulate,
)
from gpuplan.planner.goodput.spread import CUT, Spread
from gpuplan.planner.goodput.stop_sources import PoissonStops, TraceStops
from gpuplan.planner.plan.parts import Estimated, Stops

MEAN, CHANCE, COVERAGE = 0.10, 0.03, (0.76, 0.84)
"""What is promised: the mean, the chance of a deadline, the share of runs in the 80 % interval."""
MORE = [pytest.mark.slow, pytest.mark.repeats]


def cases(count: int, rng: np.random.Generator) -> list[Case]:
    """Return runs on demand, on spot in one zone, and on spot in 2 to 5 zones."""
    zones = (0, 1, int(rng.integers(2, 6)))
    return [a_case(zones[i % 3], rng) for i in range(count)]


def worst(found: list[Compared], name: str) -> Compared:
    """Return the case that is furthest off."""
    return max(found, key=lambda one: abs(getattr(one, name)))


@pytest.mark.parametrize(
    ("count", "runs"),
    [(60, 3000), pytest.param(375, 4000, marks=MORE)],
    ids=["60 cases", "375 cases"],
)
def test_the_closed_form_is_near_the_simulation(count: int, runs: int) -> None:
    rng = np.random.default_rng(13)
    judge(cases(count, rng), runs, rng)


@pytest.mark.parametrize(
    ("count", "runs"),
    [(20, 3000), pytest.param(125, 4000, marks=MORE)],
    ids=["20 cases", "125 cases"],
)
def test_it_is_where_notices_save_the_work_too(count: int, runs: int) -> None:
    rng = np.random.default_rng(17)
    noticed = [a_case(1 + i % 2 * int(rng.integers(1, 5)), rng, noticed=True) for i in range(count)]
    judge(noticed, runs, rng)


def test_slower_steps_of_a_short_run_have_one_checkpoint_more() -> None:
    # Of 2.2 hours half an hour apart: four checkpoints, or five where steps take 1.4 % longer.
    known_well = Estimated(value=7833.0, low=7448.0, high=8436.0, basis="calibrated")
    rate = 3.52e-4
    stops = Stops(
        per_hour=rate,
        per_hour_low=rate / 4,
        per_hour_high=rate * 3,
        checkpoint_bytes=1e10,
        stall_s=52.0,
        restart_s=1440.0,
        wait_s=0.0,
        saved_share=0.0,
    )
    case = Case(training_s=known_well, stops=stops, failures_per_hour=rate, zones=0)
    (found,) = compared([case], 20_000, np.random.default_rng(19))
    assert abs(found.chance) <= 0.01
    assert COVERAGE[0] <= found.coverage <= COVERAGE[1]


def judge(these: list[Case], runs: int, rng: np.random.Generator) -> None:
    """Hold the closed form to what is promised, on every case."""
    found: list[Compared] = []
    count = len(these)
    for batch in batches(these):
        found += compared(batch, runs, rng)
    for name, bound in (("mean", MEAN), ("billed", MEAN), ("chance", CHANCE)):
        off = sorted(abs(getattr(one, name)) for one in found)
        print(f"{name}: worst {off[-1]:.3f}, 95th percentile {off[int(0.95 * count)]:.3f}")
        assert off[-1] <= bound, worst(found, name)
    shares = [one.coverage for one in found]
    print(f"coverage: {min(shares):.3f} to {max(shares):.3f}")
    assert COVERAGE[0] <= min(shares) <= max(shares) <= COVERAGE[1]


def batches(these: list[Case]) -> Iterator[list[Case]]:
    """Yield the cases by their zones: those of one batch are simulated together."""
    for zones in sorted({one.zones for one in these}):
        yield [one for one in these if one.zones == zones]


def one_run(work_s: float = 3600.0, parts: int = 6) -> Runs:
    """Return a run with checkpoints of 10 s and restarts of 100 s."""
    return Runs(
        work_s=np.array([work_s]),
        segments=np.array([float(parts)]),
        stall_s=np.array([10.0]),
        restart_s=np.array([100.0]),
    )


def a_trace(*runs: tuple[int, int], nodes: int = 1) -> TraceStops:
    """Return the availability of run lengths, a sample a second."""
    return TraceStops(runs, 1.0, nodes, np.array([0.0]))


def test_a_trace_that_takes_the_machines_once_costs_the_part_the_wait_and_the_restart() -> None:
    # 6 parts of 610 s; the machines go at 1000 s, in the second part, for 50 s.
    found = simulate(
        one_run(), a_trace((4, 1000), (3, 50), (4, 10**6), nodes=4), np.random.default_rng(0)
    )
    assert found.stops[0] == 1
    assert found.elapsed_s[0] == pytest.approx(1000 + 50 + 100 + 5 * 610)
    assert found.billed_s[0] == pytest.approx(1000 + 100 + 5 * 610)


def test_a_trace_that_begins_without_machines_begins_later() -> None:
    stopping = a_trace((0, 500), (1, 1000), (0, 500))
    assert stopping.next_s(np.array([0.0]), np.array([0]))[0] == pytest.approx(1000)
    assert stopping.wait_s(np.array([1000.0]), np.array([0]))[0] == pytest.approx(1000)


@pytest.mark.parametrize("value", [0, 1])
def test_a_trace_without_a_change_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="no change"):
        a_trace((value, 100))


def test_a_run_that_nothing_stops_takes_its_parts() -> None:
    rng = np.random.default_rng(0)
    stopping = PoissonStops(np.zeros((1, 1)), np.array([100.0]), rng)
    found = simulate(one_run(), stopping, rng)
    assert found.elapsed_s[0] == found.billed_s[0] == pytest.approx(6 * 610)
    assert found.stops[0] == 0


def test_zones_are_independent_and_take_all_their_machines() -> None:
    rng = np.random.default_rng(3)
    count = 20_000
    stopping = PoissonStops(np.full((4, count), 1e-4), np.zeros(count), rng)
    every = np.arange(count)
    first_s = stopping.next_s(np.zeros(count), every)
    assert first_s.mean() == pytest.approx(1 / 4e-4, rel=0.03)
    stopping.took(first_s, np.ones(count, dtype=bool), every)
    assert stopping.next_s(first_s, every).mean() == pytest.approx(1 / 4e-4, rel=0.03)


@pytest.mark.parametrize(
    ("deadline_s", "spot_s"),
    [
        # 2 x 200 s and 3600 s of steps are kept free; what is left goes by 10 s a part and 600 s
        # for the part that is not saved.
        (4625.0, 2 * 610 + 605.0),
        (5000.0, 3660.0),
        (4605.0, 605.0),
        (3700.0, 3660.0),
    ],
    ids=["in the third part", "never", "in the first part", "no gain"],
)
def test_a_run_moves_when_its_deadline_comes_too_near(deadline_s: float, spot_s: float) -> None:
    rng = np.random.default_rng(0)
    deadline = Deadline(
        deadline_s=np.array([deadline_s]),
        slowest_restart_s=np.array([200.0]),
        steps_s=np.array([3600.0]),
        failure_per_s=np.array([0.0]),
    )
    stopping = PoissonStops(np.zeros((1, 1)), np.array([0.0]), rng)
    found = simulate(one_run(), stopping, rng, deadline)
    assert found.spot_s[0] == pytest.approx(spot_s)
    left_s = 3660.0 - spot_s
    assert found.on_demand_s[0] == pytest.approx(left_s and left_s + 100.0)


def test_factors_have_their_range_and_their_mean() -> None:
    spread = Spread.of(2.0, 1.0, 8.0)
    drawn = drawn_factors([spread], 20_001, np.random.default_rng(0))[0]
    assert np.quantile(drawn, [0.1, 0.5, 0.9]) == pytest.approx([0.5, 1.0, 4.0], rel=0.01)
    assert drawn.mean() == pytest.approx(spread.mean, rel=1e-3)
    assert drawn.max() == pytest.approx(spread.factor(CUT))
