"""What a guard decides, tick by tick, with no clock but the one that is passed in."""

from dataclasses import replace
from typing import Any

import pytest
from guards import NOW_S, STEP, make_account, make_orders
from hypothesis import example, given
from hypothesis import strategies as st

from gpuplan.launcher.guard.decisions.session import ASK, KILL, LEAVE, LEAVE_AFTER_S, Session
from gpuplan.launcher.guard.decisions.verdicts import Reading, grace_s
from gpuplan.launcher.guard.node.notice import Notice
from gpuplan.launcher.guard.orders import Busy, Orders

NOTICE = Notice("aws", 120.0, "terminate at 2026-11-23T18:02:00Z")
TIMED = Reading(step=33, trained=33, times_s=(2.0,) * 30, settled=30, alive_at_s=100.0)


def tick(orders: Orders, reading: Reading = TIMED, *, at_s: float = 100.0, **facts: Any) -> Session:
    """Return a session after one tick."""
    session = Session(orders, make_account(orders))
    session.tick(paid_s=at_s, running_s=at_s, reading=reading, **facts)
    return session


def why(*given: Any, **facts: Any) -> str | None:
    verdict = tick(*given, **facts).verdict
    return None if verdict is None else verdict.why


@given(
    rate=st.floats(0.01, 1000),
    cap_usd=st.floats(1, 10_000),
    start_s=st.floats(0, 3000),
    tail_s=st.floats(0, 4000),
    poll_s=st.floats(0.5, 5),
    checkpoint_s=st.floats(0, 3000),
    known=st.lists(st.none() | st.floats(0, 300), min_size=1, max_size=5),
    polls=st.lists(st.floats(0.2, 1), min_size=1, max_size=5),
)
@example(100.0, 50.0, 0.0, 300.0, 5.0, 600.0, [None], [1.0])
def test_no_run_passes_its_cap_by_more_than_a_checkpoint_and_a_poll(
    rate: float,
    cap_usd: float,
    start_s: float,
    tail_s: float,
    poll_s: float,
    checkpoint_s: float,
    known: list[float | None],
    polls: list[float],
) -> None:
    orders = make_orders(usd_per_hour=rate, max_cost_usd=cap_usd, tail_s=tail_s, poll_s=poll_s)
    account = make_account(orders, before_s=start_s)
    session = Session(orders, account)
    asked_at_s, count, reading = None, 0, TIMED
    # To the tick before the cap could be reached at all, in one leap.
    quiet_s = cap_usd / orders.usd_per_s - start_s - tail_s - max([0.0, *filter(None, known)])
    running_s = max(0.0, quiet_s - poll_s)
    while asked_at_s is None:
        assert count < 10_000
        reading = replace(TIMED, checkpoint_s=known[count % len(known)], alive_at_s=running_s)
        paid_s = start_s + running_s
        if session.tick(paid_s=paid_s, running_s=running_s, reading=reading) == ASK:
            asked_at_s = running_s
        else:
            running_s += poll_s * polls[count % len(polls)]
        count += 1
    assert session.verdict is not None and session.verdict.exit_code == 4
    allowed_s = grace_s(orders, reading, session.verdict)
    ends_s = asked_at_s + min(checkpoint_s, allowed_s)
    if checkpoint_s > allowed_s:
        late_s = asked_at_s + allowed_s
        assert session.tick(paid_s=start_s + late_s, running_s=late_s, reading=reading) == KILL
    total_usd = account.spent_usd(start_s + ends_s + tail_s)
    # What was spent before the first look cannot be unspent.
    floor_usd = account.spent_usd(start_s + tail_s)
    over_s = min(checkpoint_s, allowed_s) + poll_s
    assert total_usd <= max(cap_usd, floor_usd) + over_s * orders.usd_per_s + 1e-6


def test_a_checkpoint_of_known_length_is_inside_the_cap() -> None:
    orders = make_orders(max_cost_usd=1000.0, tail_s=300.0)
    assert why(orders, replace(TIMED, checkpoint_s=100.0), at_s=599.0) is None
    assert why(orders, replace(TIMED, checkpoint_s=100.0), at_s=600.0) == "max-cost"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"max_cost_usd": 99.0}, "max-cost"),
        ({"max_cost_usd": 101.0}, None),
        ({"max_cost_usd": 101.0, "spent_before_usd": 2.0}, "max-cost"),
        ({"max_cost_usd": 201.0, "after_usd": 102.0}, "max-cost"),
        ({"max_cost_usd": 201.0, "after_usd": 99.0}, None),
        ({"max_cost_usd": 5.0, "after_usd": 9.0}, "max-cost"),
        ({"max_hours": 99 / 3600}, "max-hours"),
        ({"max_hours": 101 / 3600}, None),
        ({"max_hours": 1 + 99 / 3600, "hours_before": 1.0}, "max-hours"),
        ({"deadline_s": NOW_S + 99}, "deadline"),
        ({"deadline_s": NOW_S + 101}, None),
    ],
)
def test_a_limit_ends_a_run_when_it_is_reached(
    changes: dict[str, Any], expected: str | None
) -> None:
    assert why(make_orders(**changes)) == expected


def test_other_nodes_act_later_than_the_first() -> None:
    orders = make_orders(max_cost_usd=100.0)
    late = Session(orders, make_account(orders), lag_s=600.0)
    assert late.tick(paid_s=699.0, running_s=699.0, reading=Reading()) is None
    assert late.tick(paid_s=700.0, running_s=700.0, reading=Reading()) == ASK


@pytest.mark.parametrize(
    ("changes", "facts", "code"),
    [
        ({}, {"stop_asked": True}, ("stop", 0)),
        ({}, {"signal_number": 15}, ("signal", 143)),
        ({}, {"stop_asked": True, "signal_number": 2}, ("signal", 130)),
        ({"max_cost_usd": 1.0}, {"stop_asked": True}, ("stop", 0)),
        ({}, {"notice": NOTICE}, ("notice", 143)),
        ({}, {"stop_asked": True, "notice": NOTICE}, ("stop", 0)),
        ({"max_cost_usd": 1.0}, {"notice": NOTICE}, ("max-cost", 4)),
        ({"max_cost_usd": 1.0}, {}, ("max-cost", 4)),
        ({"smoke": True, "projection": STEP}, {}, ("smoke", 0)),
        ({"smoke": True, "projection": STEP, "max_cost_usd": 1.0}, {}, ("max-cost", 4)),
        ({"projection": STEP}, {}, ("projection", 4)),
        ({"projection": replace(STEP, action="stop")}, {}, ("projection", 4)),
    ],
)
def test_what_ends_a_run_tells_its_exit_code(
    changes: dict[str, Any], facts: dict[str, Any], code: tuple[str, int]
) -> None:
    verdict = tick(make_orders(**changes), **facts).verdict
    assert verdict is not None
    assert (verdict.why, verdict.exit_code) == code


def test_a_projection_above_the_estimate_may_go_on() -> None:
    session = tick(make_orders(projection=replace(STEP, action="continue")))
    assert session.verdict is None
    assert session.projection is not None and session.projection.outcome == "above"


def test_a_projection_waits_for_its_steps_and_is_made_once() -> None:
    orders = make_orders(projection=replace(STEP, action="continue"))
    early = replace(TIMED, settled=29, times_s=(2.0,) * 29)
    session = tick(orders, early)
    assert session.projection is None
    session.tick(paid_s=101.0, running_s=101.0, reading=TIMED)
    made = session.projection
    assert made is not None
    session.tick(paid_s=102.0, running_s=102.0, reading=replace(TIMED, times_s=(9.0,) * 30))
    assert session.projection is made


@pytest.mark.parametrize(
    ("reading", "at_s", "expected"),
    [
        (Reading(), 3599, None),
        (Reading(), 3600, "heartbeat"),
        (Reading(alive_at_s=3599.0), 3600, "heartbeat"),  # It lives, and makes no step.
        (replace(TIMED, alive_at_s=5000.0), 5899, None),
        (replace(TIMED, alive_at_s=5000.0), 5900, "heartbeat"),
        (replace(TIMED, alive_at_s=5000.0, checkpoint_s=100.0), 5900, None),
        (replace(TIMED, alive_at_s=5000.0, checkpoint_s=100.0), 6200, "heartbeat"),
    ],
)
def test_a_run_that_makes_no_steps_is_ended(
    reading: Reading, at_s: float, expected: str | None
) -> None:
    orders = make_orders(heartbeat_timeout_s=900.0, startup_timeout_s=3600.0)
    assert why(orders, reading, at_s=at_s) == expected
    assert why(make_orders(), reading, at_s=at_s) is None


def test_a_run_that_hangs_is_not_waited_for() -> None:
    orders = make_orders(heartbeat_timeout_s=900.0, grace_s=600.0)
    session = tick(orders, TIMED, at_s=1000.0)
    assert session.tick(paid_s=1059.0, running_s=1059.0, reading=TIMED) is None
    assert session.tick(paid_s=1060.0, running_s=1060.0, reading=TIMED) == KILL


@pytest.mark.parametrize(("busy", "expected"), [(None, None), (0.29, "utilization"), (0.3, None)])
def test_devices_must_be_busy(busy: float | None, expected: str | None) -> None:
    orders = make_orders(min_gpu_utilization=Busy(0.3, 900.0))
    assert why(orders, replace(TIMED, busy=busy)) == expected


def test_a_loss_that_stays_no_number_ends_the_run() -> None:
    reading = replace(TIMED, loss_bad_since_s=100.0)
    assert why(make_orders(), reading, at_s=159.0) is None
    assert why(make_orders(), reading, at_s=160.0) == "loss"


@given(st.none() | st.floats(0, 3000), st.floats(0, 100))
def test_a_command_is_asked_once_and_killed_once(checkpoint_s: float | None, step_s: float) -> None:
    orders = make_orders()
    reading = replace(TIMED, checkpoint_s=checkpoint_s, times_s=(step_s,))
    session = Session(orders, make_account(orders))
    actions = [
        session.tick(paid_s=at_s, running_s=at_s, reading=reading, stop_asked=True)
        for at_s in range(0, 12_000, 10)
    ]
    done = [(at_s * 10, one) for at_s, one in enumerate(actions) if one is not None]
    (first, ask), (last, kill), (left, leave) = done
    assert (first, ask, kill, leave) == (0, ASK, KILL, LEAVE)
    assert LEAVE_AFTER_S <= left - last < LEAVE_AFTER_S + 10
    grace = 600.0 if checkpoint_s is None else max(60.0, 3 * (checkpoint_s + step_s) + 30.0)
    assert grace <= last < grace + 10
    assert session.verdict is not None and "killed" in session.verdict.text
    assert "does not end even so" in session.verdict.text


@pytest.mark.parametrize(
    ("code", "bad", "expected"),
    [
        (0, False, ("done", 0)),
        (3, False, ("failed", 3)),
        (-9, False, ("failed", 137)),
        (1, True, ("loss", 1)),
        (0, True, ("done", 0)),
    ],
)
def test_a_command_that_ends_by_itself_keeps_its_code(
    code: int, bad: bool, expected: tuple[str, int]
) -> None:
    orders = make_orders()
    session = Session(orders, make_account(orders))
    verdict = session.ended(code, paid_s=1.0, reading=TIMED, loss_is_bad=bad)
    assert (verdict.why, verdict.exit_code) == expected


@pytest.mark.parametrize("code", [0, 1, -15])
def test_a_command_that_was_stopped_does_not(code: int) -> None:
    session = tick(make_orders(max_cost_usd=1.0))
    verdict = session.ended(code, paid_s=101.0, reading=TIMED, loss_is_bad=False)
    assert (verdict.why, verdict.exit_code) == ("max-cost", 4)


def test_a_smoke_run_that_ended_first_is_projected_from_the_steps_it_made() -> None:
    orders = make_orders(smoke=True, projection=STEP)
    session = Session(orders, make_account(orders))
    few = replace(TIMED, settled=2, times_s=(2.0, 2.0))
    verdict = session.ended(0, paid_s=10.0, reading=few, loss_is_bad=False)
    assert (verdict.why, verdict.exit_code) == ("smoke", 0)
    assert session.projection is not None
    assert verdict.text == session.projection.text


def test_a_run_that_another_node_stopped_is_not_done() -> None:
    orders = make_orders()
    facts: dict[str, Any] = {"paid_s": 1.0, "reading": TIMED, "loss_is_bad": False}
    for code, elsewhere, expected in ((0, True, 143), (0, False, 0), (1, True, 1)):
        session = Session(orders, make_account(orders))
        verdict = session.ended(code, stopped_elsewhere=elsewhere, **facts)
        assert verdict.exit_code == expected
    stopped = tick(orders, stop_asked=True)
    assert stopped.ended(0, stopped_elsewhere=True, **facts).why == "stop"
