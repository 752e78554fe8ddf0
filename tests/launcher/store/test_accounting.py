"""Sums over launches: what was spent, what is committed. Exact."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fake_engine import START, Clock
from hypothesis import given
from hypothesis import strategies as st
from launch_records import make_record

from gpuplan.launcher.store.accounting import (
    attempt_usd,
    closing_line,
    committed_usd,
    node_hours,
    spent_usd,
)
from gpuplan.launcher.store.launch_record import Attempt, LaunchRecord


def attempt(seconds: float | None, *, number: int = 1, ended: bool = True) -> Attempt:
    began_at = None if seconds is None else START
    ended_at = START + timedelta(seconds=seconds) if seconds is not None and ended else None
    return Attempt(
        number=number,
        spot=False,
        asked_at=START,
        usd_per_hour=Decimal(36),
        began_at=began_at,
        ended_at=ended_at,
    )


def record(folder: Path, *attempts: Attempt, **changes: Any) -> LaunchRecord:
    return make_record(folder, Clock(), attempts=attempts, **changes)


def test_a_failed_launch_costs_nothing(tmp_path: Path) -> None:
    one = record(tmp_path, attempt(None))
    assert attempt_usd(one, one.attempts[0], now=START) == 0


def test_an_hour_costs_its_price_and_a_second_the_minimum(tmp_path: Path) -> None:
    one = record(tmp_path, attempt(3600), attempt(1, number=2))
    assert [attempt_usd(one, each, now=START) for each in one.attempts] == [
        Decimal("36.00"),
        Decimal("0.60"),
    ]
    assert spent_usd(one, now=START) == Decimal("36.60")
    assert node_hours(one, now=START) == pytest.approx(3601 / 3600)


def test_machines_that_cost_nothing_have_trained_all_the_same(tmp_path: Path) -> None:
    own = attempt(3600).model_copy(update={"usd_per_hour": Decimal(0)})
    line = closing_line(record(tmp_path, own), now=START)
    assert line.startswith("spent $0.00, ") and ", saved at s3://" in line
    assert closing_line(record(tmp_path, attempt(None)), now=START).endswith("nothing was rented")


def test_hourly_billing_rounds_up(tmp_path: Path) -> None:
    one = record(tmp_path, attempt(3601), billing_increment_s=3600.0)
    assert spent_usd(one, now=START) == Decimal("72.00")


def test_an_open_attempt_costs_until_now(tmp_path: Path) -> None:
    one = record(tmp_path, attempt(0, ended=False))
    assert spent_usd(one, now=START + timedelta(hours=2)) == Decimal("72.00")


def test_an_open_launch_counts_at_its_worst_and_an_ended_one_at_what_it_cost(
    tmp_path: Path,
) -> None:
    one = record(tmp_path, attempt(3600))
    assert committed_usd(one, now=START) == Decimal(60)
    ended = one.model_copy(update={"state": "ended"})
    assert committed_usd(ended, now=START) == Decimal("36.00")
    beyond = record(tmp_path, attempt(7200))
    assert committed_usd(beyond, now=START) == Decimal("72.00")


@given(st.lists(st.floats(0, 1e6), max_size=6))
def test_spending_is_the_sum_of_the_attempts_and_never_below_what_ran(
    seconds: list[float],
) -> None:
    attempts = tuple(attempt(each, number=number) for number, each in enumerate(seconds, 1))
    one = make_plain(attempts)
    exact = sum(Decimal(str(each)) * Decimal(36) / 3600 for each in seconds)
    assert spent_usd(one, now=START) >= exact - Decimal("0.01") * len(seconds)
    assert spent_usd(one, now=START) == sum(
        attempt_usd(one, each, now=START) for each in one.attempts
    )


def make_plain(attempts: tuple[Attempt, ...]) -> LaunchRecord:
    facts = {
        "run": "r",
        "created_at": START,
        "plan": "p",
        "title": "t",
        "model": None,
        "project": "net",
        "owner": "ann",
        "folder": "/none",
        "cluster": "gp-r",
        "managed": False,
        "nodes": 1,
        "places": (),
        "usd_expected": None,
        "usd_low": None,
        "usd_high": None,
        "usd_worst": None,
        "reserved_usd": None,
        "billing_increment_s": 1.0,
        "minimum_s": 60.0,
        "results": "",
        "out_dir": "",
        "pid": 1,
        "host": "",
    }
    return LaunchRecord.model_validate({**facts, "attempts": attempts})
