"""The order that HiGHS finds is the best on small projects, and is found soon on large ones."""

import sys
import time
from itertools import permutations, product

import numpy as np
import pytest
from capacity_jobs import job, projects
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.planner.capacity.jobs import Job
from gpuplan.planner.capacity.order import ordered
from gpuplan.planner.capacity.place import Have, place, weighted_end_h


def least_h(jobs: list[Job], have: Have) -> float:
    """Return the best of all orders and of all numbers of runs at once."""
    orders = [
        order
        for order in permutations(range(len(jobs)))
        if all(order.index(a) < order.index(n) for n, one in enumerate(jobs) for a in one.after)
    ]
    modes = list(product(*(one.at_once(have) for one in jobs)))
    return min(
        weighted_end_h(jobs, place(jobs, have, order, at_once=mode))
        for order in orders
        for mode in modes
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(projects(most=4), st.integers(4, 8))
def test_on_small_projects_no_order_is_better(jobs: list[Job], have: int) -> None:
    there = {"A": have, "B": 4}
    found = weighted_end_h(jobs, ordered(jobs, there, slot_h=1.0).placed)
    assert found == pytest.approx(least_h(jobs, there))


@pytest.mark.parametrize(
    "draws", [6, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.repeats])]
)
def test_it_is_no_worse_than_the_order_of_the_file(draws: int) -> None:
    @settings(max_examples=draws, deadline=None)
    @given(projects(), st.integers(4, 8))
    def check(jobs: list[Job], have: int) -> None:
        best = ordered(jobs, {"A": have})
        assert weighted_end_h(jobs, best.placed) <= weighted_end_h(jobs, place(jobs, {"A": have}))
        at_once = [one.at_once for one in best.placed]
        assert place(jobs, {"A": have}, best.order, at_once=at_once) == best.placed

    check()


def test_the_more_important_one_goes_first() -> None:
    jobs = [job(10, 8), job(10, 8, priority=2)]
    assert ordered(jobs, {"A": 8}).order == (1, 0)


def test_without_scipy_it_is_the_best_of_some_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    best = ordered([job(100, 8), job(1, 8)], {"A": 8})
    assert [one.begin_h for one in best.placed] == [1, 0]
    assert "scipy" in best.how and "pip install" in best.how


def large(count: int) -> list[Job]:
    chance = np.random.default_rng(0)
    return [
        job(
            float(chance.integers(5, 300)),
            int(8 * chance.integers(1, 9)),
            name=f"job {number}",
            earliest_h=float(chance.integers(0, 4000)),
            after=(number - 3,) if number % 5 == 4 else (),
            priority=int(chance.integers(1, 4)),
        )
        for number in range(count)
    ]


@pytest.mark.slow
def test_two_hundred_runs_take_seconds() -> None:
    jobs = large(200)
    begin_s = time.process_time()
    best = ordered(jobs, {"A": 128})
    assert time.process_time() - begin_s <= 10.0
    print(f"{time.process_time() - begin_s:.1f} s: {best.how}")
    assert weighted_end_h(jobs, best.placed) < 0.98 * weighted_end_h(jobs, place(jobs, {"A": 128}))
