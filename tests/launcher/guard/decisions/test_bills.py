"""What a guard counts where a bill is of more time than the machines were there."""

from dataclasses import replace

import pytest
from guards import HOUR_S, NOW_S, make_account, make_orders
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.launcher.guard.decisions.projection import project
from gpuplan.launcher.guard.decisions.session import ASK, Session
from gpuplan.launcher.guard.decisions.spending import open_account
from gpuplan.launcher.guard.decisions.verdicts import Reading
from gpuplan.launcher.guard.orders import Orders, OrdersError, ProjectionOrders
from gpuplan.planner.cost.billing import billed_seconds

AN_HOUR = make_orders(minimum_s=HOUR_S, increment_s=1.0)
"""As Oracle bills its bare metal; a dollar a second."""
TIMED = Reading(step=40, trained=40, times_s=(2.0,) * 30, settled=30, alive_at_s=100.0)


def ends_at_s(orders: Orders, *, until_s: float = 3 * HOUR_S) -> float | None:
    """Return when a guard ends a run for its cost, seconds after its machines came up."""
    session = Session(orders, make_account(orders))
    at_s = 0.0
    while at_s < until_s:
        reading = replace(TIMED, alive_at_s=at_s)
        if session.tick(paid_s=at_s, running_s=at_s, reading=reading) == ASK:
            return at_s
        at_s += orders.poll_s
    return None


def test_what_is_billed_at_least_is_spent_from_the_start() -> None:
    account = make_account(AN_HOUR)
    assert [account.spent_usd(s) for s in (60.0, HOUR_S, HOUR_S + 0.5)] == [3600, 3600, 3601]
    assert account.hours(HOUR_S / 2) == 0.5, "hours are those of the machines"


@pytest.mark.parametrize(
    ("cap_usd", "ends"),
    [
        (3600.0, HOUR_S),  # The hour is paid in any case: it is used.
        (5400.0, 5400.0),
        (3000.0, 0.0),  # Passed as soon as machines are there.
    ],
)
def test_a_run_ends_before_its_bill_passes_its_cap(cap_usd: float, ends: float) -> None:
    orders = replace(AN_HOUR, max_cost_usd=cap_usd)
    at_s = ends_at_s(orders)
    assert at_s is not None and ends - 2 * orders.poll_s <= at_s <= ends


@given(
    st.floats(0, 4 * HOUR_S),
    st.sampled_from([0.0, 60.0, HOUR_S]),
    st.sampled_from([0.0, 1.0, 60.0, 600.0, HOUR_S]),
)
def test_the_guard_counts_as_the_account_does(
    seconds: float, minimum_s: float, increment_s: float
) -> None:
    orders = make_orders(minimum_s=minimum_s, increment_s=increment_s)
    counted = billed_seconds(seconds, increment_s=increment_s or None, minimum_s=minimum_s)
    assert orders.billed_s(seconds) == pytest.approx(counted, abs=max(1e-5, increment_s))
    whole_s = float(int(seconds))
    counted = billed_seconds(whole_s, increment_s=increment_s or None, minimum_s=minimum_s)
    assert orders.billed_s(whole_s) == pytest.approx(counted, abs=1e-5)


def test_every_new_machine_is_billed_anew_and_the_same_one_once() -> None:
    first = make_account(AN_HOUR)
    went = first.so_far(600.0, 7, None)
    now_s = NOW_S + 1200.0
    other = open_account(AN_HOUR, [went], boot_s=now_s, now_s=now_s)
    assert other.spent_usd(600.0) == 7200
    same = open_account(AN_HOUR, [went], boot_s=NOW_S, now_s=now_s)
    assert same.spent_usd(3000.0) == 3600
    assert same.spent_usd(3600.0) == 4200
    assert same.so_far(3600.0, 9, None).usd == 600


def test_a_projection_within_the_least_bill_costs_no_more_than_it() -> None:
    orders = replace(AN_HOUR, projection=ProjectionOrders(total_steps=100), tail_s=60.0)
    found = project(
        orders, make_account(orders), paid_s=300.0, step=40, trained=40, times_s=(2.0,) * 30
    )
    assert (found.total_usd, found.alone_usd) == (3600, 3600)


def test_a_minimum_is_a_number() -> None:
    text = replace(AN_HOUR, minimum_s=-1.0).to_json()
    with pytest.raises(OrdersError, match="minimum_s"):
        Orders.from_json(text)
