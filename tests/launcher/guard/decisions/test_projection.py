"""The total again, from the first steps: its sums, and what it is held against."""

from dataclasses import replace

import pytest
from guards import HOUR_S, NOW_S, STEP, make_account, make_orders
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.launcher.guard.decisions.projection import Projected, project
from gpuplan.launcher.guard.decisions.spending import open_account
from gpuplan.launcher.guard.orders import Orders


def projected(orders: Orders, *, step_s: float = 2.0, paid_s: float = 166.0) -> Projected:
    return project(
        orders,
        make_account(orders),
        paid_s=paid_s,
        step=33,
        trained=33,
        times_s=[99.0, *[step_s] * 30],
    )


def test_the_total_is_what_is_spent_what_is_left_and_the_end() -> None:
    made = projected(make_orders(projection=STEP, tail_s=360.0))
    assert made.steps_left == 967
    assert made.step_time_s == 2.0
    assert made.total_usd == made.alone_usd == pytest.approx(166.0 + 967 * 2.0 + 360.0)
    assert made.hours == pytest.approx(made.total_usd / HOUR_S)
    with_more = projected(make_orders(projection=STEP, tail_s=360.0, after_usd=50.0))
    assert with_more.total_usd == with_more.alone_usd == pytest.approx(made.total_usd + 50.0)
    assert with_more.hours == made.hours


@given(
    step_s=st.floats(0.01, 1000),
    total=st.integers(33, 10**6),
    paid_s=st.floats(0, 1e6),
    rate=st.floats(0.01, 1000),
)
def test_a_run_whose_steps_take_what_was_timed_ends_at_the_projection(
    step_s: float, total: int, paid_s: float, rate: float
) -> None:
    orders = make_orders(usd_per_hour=rate, projection=replace(STEP, total_steps=total))
    made = projected(orders, step_s=step_s, paid_s=paid_s)
    really_usd = make_account(orders).spent_usd(paid_s + (total - 33) * step_s)
    assert made.total_usd == pytest.approx(really_usd)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(2000, 2200, "within"), (2150, 2200, "below"), (2000, 2050, "above"), (None, None, "within")],
)
def test_it_is_held_against_the_estimate(
    low: float | None, high: float | None, outcome: str
) -> None:
    orders = make_orders(projection=replace(STEP, low_usd=low, high_usd=high))
    made = projected(orders)
    assert made.outcome == outcome
    assert "$2,100.00" in made.text


def test_a_cap_counts_before_the_estimate() -> None:
    orders = make_orders(projection=replace(STEP, low_usd=2000.0, high_usd=2200.0))
    dear = projected(replace(orders, max_cost_usd=2099.0))
    assert dear.outcome == "above the cap"
    assert dear.text.endswith(
        "so the run costs $2,100.00 in all, above the $2,099.00 that are allowed."
    )
    assert projected(replace(orders, max_hours=0.5)).outcome == "above the cap"
    assert projected(replace(orders, max_cost_usd=2101.0, max_hours=0.6)).outcome == "within"


def test_interruptions_count_towards_the_cap_and_not_against_the_estimate() -> None:
    orders = make_orders(
        projection=replace(STEP, low_usd=2000.0, high_usd=2200.0), spent_before_usd=1000.0
    )
    account = open_account(orders, [], boot_s=NOW_S, now_s=NOW_S)
    # It went on from step 500, and has trained 33 steps here.
    made = project(orders, account, paid_s=166.0, step=533, trained=33, times_s=[2.0] * 30)
    assert made.total_usd == pytest.approx(1000.0 + 166.0 + 467 * 2.0)
    assert made.alone_usd == pytest.approx(166.0 + 967 * 2.0)
    assert made.outcome == "within"
    capped = replace(orders, max_cost_usd=2099.0)
    made = project(capped, account, paid_s=166.0, step=533, trained=33, times_s=[2.0] * 30)
    assert made.outcome == "above the cap"
