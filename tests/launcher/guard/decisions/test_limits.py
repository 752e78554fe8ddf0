"""How long a machine may exist: arithmetic, and the count of a timer, without a clock."""

from dataclasses import replace

import pytest
from guards import NOW_S, STEP, make_orders
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.launcher.guard.decisions.limits import (
    END,
    STOP_SETUP,
    Countdown,
    Limits,
    end_s,
    limits,
)
from gpuplan.launcher.guard.decisions.spending import open_account
from gpuplan.launcher.guard.decisions.verdicts import Reading, over_limit
from gpuplan.launcher.guard.orders import Orders, OrdersError, TimerOrders

TIMER = TimerOrders(setup_s=9000.0, unowned_s=10800.0, margin_s=900.0, default_end_s=200_000.0)
HELD = Limits(setup_s=100.0, setup_why="setup", after_setup_s=20.0, unowned_s=300.0, end_s=1000.0)


def end_of(**orders: object) -> float | None:
    return end_s(make_orders(grace_s=60.0, **orders), TIMER, began_s=NOW_S)


def test_the_least_of_the_limits_ends_a_machine() -> None:
    # A dollar a second; a checkpoint, other nodes' later start of one, and the margin.
    assert end_of(max_cost_usd=5000.0) == 5000 + 120 + 900
    assert end_of(max_cost_usd=5000.0, spent_before_usd=1000.0) == 4000 + 120 + 900
    # What is paid once they are gone is within a cap.
    assert end_of(max_cost_usd=5000.0, after_usd=1000.0) == 4000 + 120 + 900
    assert end_of(max_hours=1.0) == 3600 + 120 + 900
    assert end_of(max_hours=2.0, hours_before=1.5) == 1800 + 120 + 900
    assert end_of(max_hours=1.0, max_cost_usd=5000.0) == 3600 + 120 + 900
    # Idle minutes are within a cap, and come after a deadline.
    assert end_of(max_hours=1.0, tail_s=360.0) == 3600 + 120 + 900
    assert end_of(deadline_s=NOW_S + 7200.0, tail_s=360.0) == 7200 + 360 + 120 + 900


def test_without_a_limit_the_default_holds_where_a_projection_ends_slow_runs() -> None:
    assert end_of(projection=STEP) == 200_000.0
    assert end_of() is None
    forgiving = STEP.__class__(total_steps=1000, action="continue")
    assert end_of(projection=forgiving) is None


@given(cost=st.floats(2000, 1e6), hours=st.floats(1, 1000), spent=st.floats(0, 900))
def test_a_machine_never_ends_before_its_guard_has_ended_the_run(
    cost: float, hours: float, spent: float
) -> None:
    orders = make_orders(
        max_cost_usd=cost, max_hours=hours, spent_before_usd=spent, tail_s=360.0, grace_s=600.0
    )
    last_s = end_s(orders, TIMER, began_s=NOW_S)
    assert last_s is not None
    account = open_account(orders, [], boot_s=NOW_S, now_s=NOW_S)
    # Other nodes than the first act a grace and a poll later; killed after one more grace.
    held_s = last_s - TIMER.margin_s - 2 * orders.grace_s - orders.tail_s + 0.001
    assert over_limit(orders, account, Reading(), paid_s=held_s, now_s=NOW_S + held_s)
    killed_s = held_s + orders.grace_s + orders.poll_s + orders.grace_s
    assert killed_s + orders.tail_s < last_s


def test_set_up_takes_no_longer_than_the_limits_leave() -> None:
    orders = make_orders(max_hours=1.0, tail_s=360.0)
    held = limits(orders, TIMER, began_s=NOW_S, used_s=600.0)
    assert (held.setup_s, held.setup_why) == (3600 - 360 - 600, "max-hours")
    assert limits(make_orders(), TIMER, began_s=NOW_S, used_s=600.0).setup_s == 9000.0
    near = make_orders(deadline_s=NOW_S + 900.0, tail_s=360.0)
    assert limits(near, TIMER, began_s=NOW_S, used_s=600.0).setup_s == 300.0
    spent = make_orders(max_hours=1.0, hours_before=2.0)
    assert limits(spent, TIMER, began_s=NOW_S, used_s=0.0).setup_s == 0.0


def test_a_set_up_that_hangs_is_stopped_once_and_then_the_machine_ends() -> None:
    count = Countdown(HELD, used_s=50.0)
    assert count.tick(149.0, setting_up=True, guarded=False) is None
    assert count.tick(150.0, setting_up=True, guarded=False) == STOP_SETUP
    assert "set-up did not end within" in count.why
    assert count.tick(151.0, setting_up=True, guarded=False) is None
    assert count.tick(169.0, setting_up=False, guarded=False) is None
    assert count.tick(170.0, setting_up=False, guarded=False) == END
    assert "set-up did not end within" in count.why


def test_a_machine_on_which_nothing_runs_ends() -> None:
    count = Countdown(HELD, used_s=0.0)
    assert count.tick(90.0, setting_up=True, guarded=False) is None
    assert count.tick(389.0, setting_up=False, guarded=False) is None
    assert count.tick(390.0, setting_up=False, guarded=False) == END
    assert "neither set-up nor a run" in count.why


def test_a_run_under_its_guard_is_left_alone_until_the_last_limit() -> None:
    count = Countdown(HELD, used_s=0.0)
    for now_s in range(0, 1000, 50):
        assert count.tick(float(now_s), setting_up=False, guarded=True) is None
    assert count.tick(1000.0, setting_up=False, guarded=True) == END
    endless = Countdown(Limits(100.0, "setup", 20.0, 300.0, None), used_s=0.0)
    for now_s in range(0, 10**7, 10**4):
        assert endless.tick(float(now_s), setting_up=False, guarded=True) is None


def test_a_machine_whose_run_cannot_be_killed_ends_once_all_is_uploaded() -> None:
    held = replace(HELD, end_s=None, after_stuck_s=30.0)
    for guarded in (True, False):
        count = Countdown(held, used_s=0.0)
        assert count.tick(10.0, setting_up=False, guarded=True) is None
        assert count.tick(20.0, setting_up=False, guarded=guarded, stuck=True) is None
        assert count.tick(49.0, setting_up=False, guarded=guarded, stuck=True) is None
        assert count.tick(50.0, setting_up=False, guarded=guarded, stuck=True) == END
        assert "even when it is killed" in count.why
    orders = make_orders()
    assert limits(orders, TIMER, began_s=NOW_S, used_s=0.0).after_stuck_s == TIMER.margin_s


def test_orders_with_a_timer_read_back() -> None:
    timer = TimerOrders(1.0, 2.0, 3.0, power_off=("sh", "-c", "x"), power_off_on=("aws",))
    orders = make_orders(timer=timer)
    assert Orders.from_json(orders.to_json()) == orders


@pytest.mark.parametrize(
    ("field", "value"),
    [("setup_s", -1.0), ("unowned_s", None), ("poll_s", 0.0), ("power_off", "shutdown")],
)
def test_a_timer_that_says_nothing_sensible_is_refused(field: str, value: object) -> None:
    orders = make_orders(timer=TimerOrders(**{**TIMER.__dict__, field: value}))  # type: ignore[arg-type]
    with pytest.raises(OrdersError, match="timer"):
        Orders.from_json(orders.to_json())
