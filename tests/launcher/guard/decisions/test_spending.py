"""What a run has cost adds up over its attempts, whichever way each of them ended."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from guards import HOUR_S, NOW_S, make_orders
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.launcher.guard import folder, timer
from gpuplan.launcher.guard.decisions.spending import Attempt, open_account
from gpuplan.launcher.guard.decisions.verdicts import Verdict
from gpuplan.launcher.guard.orders import TimerOrders

CLOCK_S = 1e-6
"""Seconds since 1970 are kept to a quarter of this."""
DONE = Verdict("done", "It is done.", 0)
attempts = st.lists(
    st.tuples(
        st.sampled_from(["ended", "died", "died before its first state"]),
        st.floats(0, 1e5),  # Seconds that it lasted.
        st.floats(0, 1e5),  # Seconds until the next one was there, unpaid.
        st.booleans(),  # Whether a new machine came up for it.
        st.booleans(),  # Whether a new launch asked for it.
    ),
    min_size=1,
    max_size=6,
)


@given(attempts, st.floats(0, 1000), st.floats(0.01, 100))
def test_every_attempt_is_counted_once(
    lasted: list[tuple[str, float, float, bool, bool]], before_usd: float, usd_per_hour: float
) -> None:
    orders = make_orders(usd_per_hour=usd_per_hour, spent_before_usd=before_usd)
    now_s, boot_s, expected_s, seen = NOW_S, NOW_S, 0.0, 0
    known_usd = before_usd
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        for end, lasted_s, until_s, new_machine, new_launch in lasted:
            found = folder.read_attempts(out)
            if new_launch:  # Whose store knows all that is known so far, or nothing.
                orders = replace(orders, requested_at_s=now_s, spent_before_usd=known_usd)
            if new_machine:
                boot_s = now_s
            folder.write_attempts(out, found)
            account = open_account(orders, found, boot_s=boot_s, now_s=now_s)
            last_s = max([orders.requested_at_s, boot_s, *(one.seen_at_s for one in found)])
            assert account.began_at_s == pytest.approx(last_s)
            paid_s = now_s - account.began_at_s + lasted_s
            now_s += lasted_s + until_s
            if end == "died before its first state":
                continue
            seen += 1
            expected_s += paid_s
            known_usd = account.spent_usd(paid_s)
            expected_usd = before_usd + expected_s / HOUR_S * usd_per_hour
            assert known_usd == pytest.approx(expected_usd, abs=CLOCK_S * seen * usd_per_hour)
            _leave(out, orders, account, paid_s, verdict=DONE if end == "ended" else None)
        assert len(folder.read_attempts(out)) == seen
        hours = sum(one.hours for one in folder.read_attempts(out))
        assert hours == pytest.approx(expected_s / HOUR_S, abs=CLOCK_S * seen / HOUR_S)


def _leave(out: Path, orders, account, paid_s: float, *, verdict: Verdict | None) -> None:
    values = folder.state(orders, account, paid_s=paid_s, step=7, projection=None, verdict=verdict)
    if verdict is not None:
        ended = account.so_far(paid_s, 7, verdict.to_dict())
        folder.write_attempts(out, [*folder.read_attempts(out), ended])
    folder.write_state(out, values)


def line(attempt: int, *, requested_at_s: float, usd: float) -> Attempt:
    return Attempt(
        attempt=attempt,
        requested_at_s=requested_at_s,
        began_at_s=requested_at_s,
        seen_at_s=requested_at_s + HOUR_S,
        usd=usd,
    )


@pytest.mark.parametrize(("known_usd", "before_usd"), [(0.0, 9.0), (8.0, 12.0)])
def test_what_the_store_knows_of_earlier_launches_is_not_counted_twice(
    known_usd: float, before_usd: float
) -> None:
    orders = make_orders(spent_before_usd=known_usd)
    found = [
        line(1, requested_at_s=NOW_S - 9000, usd=5.0),
        line(2, requested_at_s=NOW_S, usd=4.0),
    ]
    account = open_account(orders, found, boot_s=None, now_s=NOW_S + 4000)
    assert account.before_usd == before_usd
    assert account.before_hours == 2.0
    assert account.attempt == 3


def test_what_is_paid_while_it_waits_for_machines_is_counted() -> None:
    """Of five hours since the request an hour was on machines, and a controller costs $0.20."""
    orders = make_orders(usd_per_hour=10.0, waiting_usd_per_hour=0.2, after_usd=0.03)
    first = line(1, requested_at_s=NOW_S, usd=10.0)
    now_s = NOW_S + 5 * HOUR_S
    account = open_account(orders, [first], boot_s=now_s, now_s=now_s)
    assert account.waited_usd == pytest.approx(4 * 0.2)
    assert account.spent_usd(HOUR_S) == pytest.approx(10 + 0.8 + 10)
    assert account.hours(HOUR_S) == pytest.approx(2)
    assert account.so_far(HOUR_S, 7, None).usd == 10, "the next attempt counts the waits anew"
    queued = open_account(orders, [], boot_s=NOW_S + HOUR_S, now_s=NOW_S + HOUR_S)
    assert queued.waited_usd == pytest.approx(0.2)
    damaged = open_account(orders, [first], boot_s=now_s, now_s=now_s, whole=False)
    assert damaged.waited_usd == 0, "machines are counted since the request, at a higher price"


def test_a_container_is_not_paid_for_since_its_host_came_up() -> None:
    account = open_account(make_orders(), [], boot_s=NOW_S - 1e6, now_s=NOW_S + 60)
    assert account.began_at_s == NOW_S


def test_a_machine_that_came_up_later_is_not_paid_for_since_the_request() -> None:
    account = open_account(make_orders(), [], boot_s=NOW_S + 200, now_s=NOW_S + 500)
    assert account.began_at_s == NOW_S + 200


@pytest.mark.parametrize(
    ("boot_s", "setup_s", "began_s"),
    [
        (-8640.0, -8500.0, -8640.0),  # A machine that was rented.
        (-8640.0, None, -8640.0),
        (-1e6, -8500.0, -8500.0),  # A container, whose host came up long ago.
        (None, -8500.0, -8500.0),
        (None, None, 0.0),
    ],
)
def test_a_request_by_a_clock_that_is_fast_hides_no_set_up(
    boot_s: float | None, setup_s: float | None, began_s: float
) -> None:
    """The laptop's clock is 3 hours ahead, and set-up took 2.4 hours."""
    orders = make_orders(requested_at_s=NOW_S - 8700 + 3 * HOUR_S, usd_per_hour=98.0)
    account = open_account(
        orders,
        [],
        boot_s=None if boot_s is None else NOW_S + boot_s,
        setup_s=None if setup_s is None else NOW_S + setup_s,
        now_s=NOW_S,
    )
    assert account.began_at_s == NOW_S + began_s
    assert account.spent_usd(-began_s) == pytest.approx(-began_s / HOUR_S * 98.0)


def test_an_attempt_after_another_is_not_paid_for_twice_where_the_clock_is_fast() -> None:
    orders = make_orders(requested_at_s=NOW_S + HOUR_S)
    first = line(1, requested_at_s=NOW_S - 2 * HOUR_S, usd=10.0)
    account = open_account(orders, [first], boot_s=NOW_S - 2 * HOUR_S, now_s=NOW_S)
    assert account.began_at_s == first.seen_at_s


def test_a_state_that_is_no_json_is_no_attempt(tmp_path: Path) -> None:
    (tmp_path / "guard-state.json").write_text('{"attempt": 1,')
    (tmp_path / "guard-attempts.jsonl").write_text("[]\n\nnull\n{}\n")
    assert folder.read_attempts(tmp_path) == []


@pytest.mark.parametrize(("ago_s", "used_s"), [(150.0, 150.0), (1e6, 0.0)])
def test_the_timer_too_counts_from_the_boot_where_the_clock_of_the_request_is_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ago_s: float, used_s: float
) -> None:
    """It begins with set-up; a boot that was long before is that of a container's host."""
    orders = make_orders(requested_at_s=NOW_S + HOUR_S, timer=TimerOrders(1.0, 1.0, 1.0))
    monkeypatch.setattr(timer, "boot_s", lambda: NOW_S - ago_s)
    monkeypatch.setattr(timer.time, "time", lambda: NOW_S)
    begun = timer.Timer(orders, tmp_path / "guard.json", tmp_path, os.getpid())._begin()
    assert begun[2] == used_s
