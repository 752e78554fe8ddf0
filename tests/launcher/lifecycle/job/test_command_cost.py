"""What of an attempt's cost is that of its command, and what is idle."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fake_engine import START, Clock, FakeEngine
from launch_records import make_context, make_record

from gpuplan.launcher.lifecycle.engine import EngineJob
from gpuplan.launcher.lifecycle.job.guard_report import command_usd, managed_usd, word_in_log
from gpuplan.launcher.lifecycle.transitions import ask, attend, begin, wait_started
from gpuplan.launcher.store.accounting import attempt_usd, idle_usd
from gpuplan.launcher.store.launch_record import Attempt, LaunchRecord
from gpuplan.launcher.store.spending_limits import SpendingLimits

JOB = EngineJob(job_id=1, status="succeeded")
AN_HOUR = {"began_at_s": 1000.0, "seen_at_s": 4600.0, "command_s": 2700.0, "usd": 36.0}


def line(**facts: Any) -> str:
    said = {"verdict": {"why": "done", "text": "", "exit_code": 0}, "spent_usd": 36.0, **facts}
    return f"gpuplan-guard: {json.dumps(said)}\n"


def at_36(folder: Path, **changes: Any) -> LaunchRecord:
    attempt = Attempt(
        number=1, spot=False, asked_at=START, began_at=START, usd_per_hour=Decimal(36)
    )
    return make_record(folder, Clock(), attempts=(attempt,), **changes)


def test_the_guard_says_how_long_its_command_ran(tmp_path: Path) -> None:
    assert command_usd(at_36(tmp_path), JOB, word_in_log(line(command_s=1800.0))) == 18


def test_without_its_word_the_engine_does_and_else_nobody(tmp_path: Path) -> None:
    timed = replace(JOB, started_at=START, ended_at=START + timedelta(minutes=10))
    assert command_usd(at_36(tmp_path), timed, word_in_log(line())) == 6
    assert command_usd(at_36(tmp_path), timed, None) == 6
    assert command_usd(at_36(tmp_path), JOB, word_in_log(line())) is None
    assert command_usd(make_record(tmp_path, Clock()), timed, None) is None


@pytest.mark.parametrize(
    ("job", "changes", "usd"),
    [
        (JOB, {}, 27),
        (replace(JOB, recoveries=1), {}, None),
        (JOB, {"spent_usd": 40.0}, None),
        (JOB, {"command_s": None}, None),
        (JOB, {"seen_at_s": None}, None),
    ],
)
def test_a_job_that_the_engine_began_again_is_not_known(
    tmp_path: Path, job: EngineJob, changes: dict[str, Any], usd: int | None
) -> None:
    word = word_in_log(line(**{**AN_HOUR, **changes}))
    assert command_usd(at_36(tmp_path, managed=True), job, word) == usd


def test_what_a_bill_is_rounded_up_by_is_not_of_the_command(tmp_path: Path) -> None:
    word = word_in_log(line(**{**AN_HOUR, "seen_at_s": 2800.0, "command_s": 900.0}))
    assert word is not None
    at_rate = word.model_copy(update={"usd_per_hour": Decimal(36)})
    assert command_usd(at_36(tmp_path, managed=True), JOB, at_rate) == 9


@pytest.mark.parametrize(("recoveries", "usd"), [(0, "36.30"), (2, "36.90")])
def test_machines_of_a_managed_job_cost_until_they_are_gone(
    tmp_path: Path, recoveries: int, usd: str
) -> None:
    job = replace(JOB, recoveries=recoveries)
    assert managed_usd(at_36(tmp_path), job, word_in_log(line()), now=START) == Decimal(usd)


def test_what_earlier_launches_cost_is_not_counted_again(tmp_path: Path) -> None:
    earlier = Attempt(number=1, spot=True, asked_at=START, counted_usd=Decimal("30.30"))
    (last,) = at_36(tmp_path).attempts
    record = make_record(tmp_path, Clock(), attempts=(earlier, last))
    word = word_in_log(line(spent_usd=36.3))
    assert managed_usd(record, JOB, word, now=START) == Decimal("6.30")


def test_the_controller_of_a_managed_job_is_paid_while_it_waits_and_until_it_stops(
    tmp_path: Path,
) -> None:
    record = at_36(tmp_path, managed=True, controller_usd_per_hour=Decimal(6))
    # An hour of machines in three; half a minute until they were gone, ten until it stopped.
    job = replace(JOB, ended_at=START + timedelta(hours=3))
    alone = managed_usd(at_36(tmp_path, managed=True), job, word_in_log(line()), now=START)
    beside = managed_usd(record, job, word_in_log(line()), now=START)
    assert alone is not None and beside is not None
    assert alone == Decimal("36.30")
    assert beside - alone == Decimal("12.95")


def test_a_wait_that_the_guard_counted_is_not_counted_twice(tmp_path: Path) -> None:
    record = at_36(tmp_path, managed=True, controller_usd_per_hour=Decimal(6))
    job = replace(JOB, ended_at=START + timedelta(hours=3))
    word, waited = word_in_log(line()), word_in_log(line(spent_usd=36 + 11.9, waited_usd=11.9))
    assert word is not None and word.spent_usd == 36
    assert managed_usd(record, job, waited, now=START) == managed_usd(record, job, word, now=START)
    whole = word_in_log(line(**{**AN_HOUR, "spent_usd": 36 + 11.9, "waited_usd": 11.9}))
    assert command_usd(record, JOB, whole) == 27


@pytest.mark.parametrize("log", ["", line(spent_usd=None)])
def test_without_the_guards_word_a_managed_job_is_not_counted(tmp_path: Path, log: str) -> None:
    assert managed_usd(at_36(tmp_path), JOB, word_in_log(log), now=START) is None


def test_idle_is_what_is_paid_less_the_command_and_never_below_nothing(tmp_path: Path) -> None:
    (attempt,) = at_36(tmp_path).attempts
    ended = attempt.model_copy(update={"ended_at": START + timedelta(hours=1)})
    record = at_36(tmp_path)

    def idle(command: Decimal | None) -> Decimal | None:
        one = ended.model_copy(update={"command_usd": command})
        return idle_usd(record, one, now=START)

    assert idle(Decimal(27)) == 9
    assert idle(Decimal(40)) == 0
    assert idle(None) is None
    nothing = Attempt(number=1, spot=False, asked_at=START)
    assert idle_usd(record, nothing, now=START) == 0


def test_a_launch_that_has_ended_keeps_it(tmp_path: Path) -> None:
    engine = FakeEngine(Clock())
    context = make_context(tmp_path, engine)
    record = make_record(tmp_path, engine.clock)
    begun = begin(context, record, SpendingLimits(), spot=False)
    started = wait_started(context, ask(context, begun))
    engine.log = "step 1\n" + line(command_s=300.0)
    last = attend(context, started).last
    assert last is not None and last.command_usd is not None and last.usd_per_hour is not None
    assert last.command_usd == last.usd_per_hour / 12
    whole = attempt_usd(record, last, now=engine.clock())
    assert idle_usd(record, last, now=engine.clock()) == whole - last.command_usd > 0


@pytest.mark.parametrize("facts", [{"spent_usd": "abc"}, {"usd": [1]}, {"usd": None, "step": "x"}])
def test_a_report_whose_numbers_are_none_is_no_report(facts: dict[str, Any]) -> None:
    assert word_in_log(line(**facts)) is None
