"""What an open launch has spent of what was planned, and what it comes to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from kept_pages import attempt, launch

from gpuplan.launcher.store.accounting import spent_usd
from gpuplan.launcher.store.burn_down import BurnDown, burn_down

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
RATE = Decimal("21.96")


def burn_of(hours: float, **changes) -> BurnDown:
    return burn_down(launch("net-1", NOW, hours, **changes), now=NOW)


def test_it_counts_as_the_account_does() -> None:
    lost = attempt(NOW - timedelta(hours=9), ended_at=NOW - timedelta(hours=7), outcome="preempted")
    record = launch("net-1", NOW, 9, attempts=(lost, attempt(NOW - timedelta(hours=1), 2)))
    burn = burn_down(record, now=NOW)
    assert burn.spent_usd == spent_usd(record, now=NOW) == 3 * RATE
    times, amounts = zip(*burn.spent, strict=True)
    assert list(times) == sorted(times) and list(amounts) == sorted(amounts)
    assert (lost.ended_at, 2 * RATE) in burn.spent
    assert (record.attempts[1].began_at, 2 * RATE) in burn.spent, "nothing between two attempts"


def test_a_bill_by_the_hour_rises_in_stairs() -> None:
    burn = burn_of(2.5, billing_increment_s=3600.0)
    assert {usd for _, usd in burn.spent} == {0, RATE, 2 * RATE, 3 * RATE}


def test_the_forecast_is_the_plan_at_the_present_rate() -> None:
    burn = burn_of(1.0)
    assert burn.end_usd == Decimal("71.20")
    assert burn.end_range_usd == (Decimal("63.40"), Decimal("82.10"))
    at = burn.at(Decimal("71.20"))
    assert at is not None
    hours = (at - NOW).total_seconds() / 3600
    assert hours == pytest.approx(float((Decimal("71.20") - RATE) / RATE))


def test_what_is_spent_is_cut_off_the_forecast() -> None:
    within = burn_of(3.5)
    assert within.end_usd == Decimal("82.10"), "more than planned, less than the high end"
    assert within.end_range_usd == (within.spent_usd, Decimal("82.10"))
    assert not within.is_over
    over = burn_of(4.0)
    assert over.is_over
    assert (over.end_usd, over.end_range_usd) == (None, None)
    assert over.at(Decimal("71.20")) is None, "that is long ago"


@pytest.mark.parametrize(
    "changes",
    [
        {"attempts": ()},
        {"attempts": (attempt(NOW).model_copy(update={"began_at": None, "usd_per_hour": None}),)},
        {"attempts": (attempt(NOW - timedelta(hours=1), usd_per_hour=None),)},
        {"state": "ended", "outcome": "failed"},
    ],
)
def test_without_a_rate_no_end_is_known(changes) -> None:
    burn = burn_of(1.0, **changes)
    assert burn.usd_per_hour is None
    assert burn.at(Decimal(80)) is None


def test_a_launch_that_was_not_priced_has_no_forecast() -> None:
    nothing = {"usd_expected": None, "usd_low": None, "usd_high": None, "usd_worst": None}
    burn = burn_of(1.0, **nothing)
    assert (burn.end_usd, burn.end_range_usd, burn.is_over) == (None, None, False)


def test_nothing_has_begun_before_machines_are_paid_for() -> None:
    assert not burn_of(1.0, attempts=()).has_begun
    assert burn_of(0.0).has_begun


def test_a_clock_that_was_set_back_takes_nothing_back() -> None:
    begin = NOW + timedelta(minutes=5)
    burn = burn_down(launch("net-1", NOW, -0.1, attempts=(attempt(begin),)), now=NOW)
    assert burn.spent_usd >= 0
    times = [at for at, _ in burn.spent]
    assert times == sorted(times)


def test_what_the_guard_counted_stands() -> None:
    one = attempt(NOW - timedelta(hours=2), counted_usd=Decimal("11.11"))
    assert burn_of(2.0, attempts=(one,)).spent_usd == Decimal("11.11")


def test_a_launch_of_unknown_end_is_drawn_to_where_it_was_last_seen() -> None:
    began_at, seen_at = NOW - timedelta(days=10), NOW - timedelta(days=9)
    one = attempt(began_at, ended_at=NOW - timedelta(days=1), outcome="lost", unknown_from=seen_at)
    record = launch("net-1", NOW, 240, state="ended", outcome="lost", attempts=(one,))
    drawn = burn_down(record, now=NOW).spent
    assert drawn[-1] == (seen_at, 24 * RATE)
    assert len({usd for _, usd in drawn}) > 20
