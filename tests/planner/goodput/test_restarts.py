"""The closed form of a run that stops and restarts, against laws and a plain simulation."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.goodput.restarts import (
    Conditions,
    best_interval_s,
    elapsed,
    mean_s,
    segments_of,
)

DAY = 86_400.0
conditions = st.builds(
    Conditions,
    rate_per_s=st.floats(1e-9, 1e-3),
    stall_s=st.floats(0.1, 300),
    restart_s=st.floats(1, 1800),
    wait_s=st.floats(0, 3600),
    saved_share=st.just(0.0) | st.floats(0, 0.99),
)


def simulated_s(work_s: float, segments: int, of: Conditions, rng: random.Random) -> float:
    """Return the time of one run, drawn event by event."""
    total = 0.0
    for _ in range(segments):
        left_s = part_s = work_s / segments + of.stall_s
        while (stop_s := rng.expovariate(of.rate_per_s)) < left_s:
            total += stop_s
            if of.wait_s:
                total += rng.expovariate(1 / of.wait_s)
            left_s = of.restart_s + part_s
        total += left_s
    return total


@pytest.mark.parametrize("hours_between", [2.0, 20.0, 500.0])
@pytest.mark.parametrize("wait_s", [0.0, 1200.0])
def test_mean_and_variance_are_those_of_a_simulation(hours_between: float, wait_s: float) -> None:
    of = Conditions(
        rate_per_s=1 / 3600 / hours_between, stall_s=20.0, restart_s=700.0, wait_s=wait_s
    )
    work_s = 2 * DAY
    segments = segments_of(work_s, 1800.0)
    rng = random.Random(7)
    drawn = np.array([simulated_s(work_s, segments, of, rng) for _ in range(4000)])
    found = elapsed(work_s, segments, of)
    assert found.mean_s == pytest.approx(drawn.mean(), rel=0.003)
    assert math.sqrt(found.variance_s2) == pytest.approx(
        drawn.std(), rel=0.06 if hours_between < 100 else 0.2
    )
    undisturbed_s = work_s + segments * of.stall_s
    assert found.none_chance == pytest.approx((drawn <= undisturbed_s + 1).mean(), abs=0.02)


@given(of=conditions, work_s=st.floats(60, 30 * DAY), factor=st.floats(0.3, 3))
def test_the_mean_is_above_the_work_and_grows_with_everything(
    of: Conditions, work_s: float, factor: float
) -> None:
    segments = segments_of(work_s, factor * best_interval_s(of.rate_per_s, of.stall_s))
    found = elapsed(work_s, segments, of)
    assert found.mean_s == pytest.approx(mean_s(work_s, segments, of), rel=1e-6)
    assert found.mean_s >= (work_s + segments * of.stall_s) * (1 - 1e-9)
    for name in ("rate_per_s", "stall_s", "restart_s"):
        more = replace(of, **{name: getattr(of, name) * 1.1})
        assert mean_s(work_s, segments, more) >= mean_s(work_s, segments, of) * (1 - 1e-9)


@given(rate=st.floats(1e-10, 1e-2), stall_s=st.floats(0.01, 3600))
def test_no_other_interval_is_better(rate: float, stall_s: float) -> None:
    of = Conditions(rate_per_s=rate, stall_s=stall_s, restart_s=600.0)
    best = best_interval_s(rate, stall_s)

    def cost(interval_s: float) -> float:
        return mean_s(interval_s, 1, of) / interval_s

    assert cost(best) <= cost(best * 1.01) * (1 + 1e-12)
    assert cost(best) <= cost(best / 1.01) * (1 + 1e-12)


def test_young_and_daly_agree_where_stops_are_rare() -> None:
    rate, stall_s = 1 / (100 * 3600), 30.0
    young = math.sqrt(2 * stall_s / rate)
    assert best_interval_s(rate, stall_s) == pytest.approx(young, rel=0.02)
    assert best_interval_s(rate, stall_s) < young
    assert best_interval_s(0.0, stall_s) == math.inf
    assert best_interval_s(rate, 0.0) == 0.0


def test_a_stop_with_notice_costs_its_restart_and_no_work() -> None:
    of = Conditions(rate_per_s=1e-7, stall_s=10.0, restart_s=600.0, wait_s=300.0)
    part_s, undisturbed_s = 1810.0, 100 * 1810.0

    def a_stop_s(saved_share: float) -> float:
        found = elapsed(100 * 1800.0, 100, replace(of, saved_share=saved_share))
        return (found.mean_s - undisturbed_s) / found.stops

    assert a_stop_s(0.0) == pytest.approx(part_s / 2 + 600 + 300, rel=0.001)
    assert a_stop_s(0.5) == pytest.approx(part_s / 4 + 600 + 300, rel=0.001)
    assert a_stop_s(0.999) == pytest.approx(600 + 300, rel=0.002)


def test_arrays_give_what_floats_give() -> None:
    rates = np.array([1e-9, 1e-6, 1e-4])
    of = Conditions(rate_per_s=rates, stall_s=10.0, restart_s=600.0, wait_s=100.0, saved_share=0.4)
    found = elapsed(5 * DAY, 200, of, np)
    for place, rate in enumerate(rates):
        one = elapsed(5 * DAY, 200, replace(of, rate_per_s=float(rate)))
        for name in ("mean_s", "variance_s2", "waited_s", "stops", "none_chance"):
            assert getattr(found, name)[place] == pytest.approx(getattr(one, name), rel=1e-6)
