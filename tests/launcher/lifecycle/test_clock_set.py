"""A clock that is set, or stands still while a laptop sleeps: the machines' own count holds."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fake_engine import Clock, FakeEngine
from launch_records import RUN, make_context, make_record
from launch_records import launched as kept_launch

from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.resume import down, reconcile_run
from gpuplan.launcher.lifecycle.transitions import ask, begin, end, wait_started
from gpuplan.launcher.store.accounting import node_hours, spent_usd
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.launch_record import LaunchRecord, PricedPlace
from gpuplan.launcher.store.launches import Ledger
from gpuplan.launcher.store.spending_limits import SpendingLimits
from gpuplan.launcher.uptime import Uptime

HOUR_S = 3600.0
RAN_S = 8 * HOUR_S
DONE = (
    'gpuplan-guard: {"verdict": {"why": "done", "text": "It is done.", "exit_code": 0},'
    ' "began_at_s": %f, "seen_at_s": %f, "command_s": 27000.0}\n'
)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def context(tmp_path: Path, engine: FakeEngine, said: list[str]) -> LaunchContext:
    return make_context(tmp_path, engine, tell=said.append)


def launched(context: LaunchContext, folder: Path) -> LaunchRecord:
    """Return a launch whose job is submitted."""
    record = make_record(folder, Clock(context.now()))
    return wait_started(context, ask(context, begin(context, record, SpendingLimits(), spot=False)))


@pytest.mark.parametrize("step_s", [0.0, -RAN_S], ids=["stood still", "was set back"])
@pytest.mark.parametrize("has_word", [True, False])
def test_hours_that_this_clock_missed_are_paid(
    tmp_path: Path,
    context: LaunchContext,
    engine: FakeEngine,
    said: list[str],
    step_s: float,
    has_word: bool,
) -> None:
    record = launched(context, tmp_path)
    began_at = engine.clock()
    engine.end_job(record.cluster)
    # As the node saw it, whose clock goes right.
    engine.time_job(record.cluster, began_at, began_at + timedelta(seconds=RAN_S))
    if has_word:
        began_s = began_at.timestamp()
        engine.log = DONE % (began_s, began_s + RAN_S)
    engine.clock.pass_s(step_s)
    ended, _ = reconcile_run(context, context.ledger.get(RUN))
    later = engine.clock() + timedelta(days=9)
    assert 8 <= node_hours(ended, now=later) < 8.1
    assert Decimal(8 * 36) <= spent_usd(ended, now=later) < Decimal(8 * 36) + 4
    assert "clock" in said[-1]


def test_a_clock_set_forward_before_a_managed_job_loses_none_of_its_hours(
    tmp_path: Path, engine: FakeEngine
) -> None:
    ahead = timedelta(hours=5)

    def now() -> datetime:
        return engine.clock() + ahead

    ledger = Ledger(Store(tmp_path / "store.sqlite3"), now=now)
    context = make_context(tmp_path, engine, ledger=ledger, now=now)
    record = make_record(tmp_path, Clock(now()), managed=True)
    begun = begin(context, record, SpendingLimits(), spot=True)
    record = wait_started(context, ask(context, begun))
    engine.clock.pass_s(HOUR_S)
    engine.end_job(record.cluster)
    ended, _ = reconcile_run(context, context.ledger.get(RUN))
    assert spent_usd(ended, now=now()) >= engine.billed_usd() > 35


def test_a_clock_that_goes_right_changes_nothing(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, said: list[str]
) -> None:
    record = launched(context, tmp_path)
    began_at = engine.clock()
    engine.clock.pass_s(RAN_S)
    engine.end_job(record.cluster)
    engine.time_job(record.cluster, began_at, engine.clock())
    engine.clock.pass_s(HOUR_S)  # Idle, until somebody looked.
    ended, _ = reconcile_run(context, record)
    assert spent_usd(ended, now=engine.clock()) >= engine.billed_usd() > 9 * 36
    assert not [text for text in said if "clock" in text]


def test_no_hour_is_below_none(tmp_path: Path, engine: FakeEngine) -> None:
    # As where the system does not say which of its starts it counts from.
    store = Store(tmp_path / "store.sqlite3")
    ledger = Ledger(store, now=engine.clock, uptime=lambda: None)
    context = make_context(tmp_path, engine, ledger=ledger)
    launched(context, tmp_path)
    engine.clock.pass_s(-RAN_S)
    ended = down(context, context.ledger.get(RUN))
    assert ended.last is not None and ended.last.began_at is not None
    assert ended.last.ended_at == ended.last.began_at
    assert node_hours(ended, now=engine.clock()) == 0
    running = ended.with_last(ended_at=None)
    assert node_hours(running, now=engine.clock()) == 0


def test_a_clock_set_back_while_a_launch_is_closed_loses_none_of_its_hours(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    launched(context, tmp_path)
    engine.clock.pass_s(RAN_S)

    class Late(Ledger):
        def update(self, *given: Any, **named: Any) -> LaunchRecord:
            if str(named.get("what")).startswith("ended"):
                engine.clock.pass_s(-RAN_S)
            return super().update(*given, **named)

    late = Late(Store(tmp_path / "store.sqlite3"), now=engine.clock)
    ended = down(replace(context, ledger=late), context.ledger.get(RUN))
    assert spent_usd(ended, now=engine.clock()) >= Decimal(8 * 36)


class Here:
    """This machine, whose clock may have been set."""

    def __init__(self, folder: Path, engine: FakeEngine) -> None:
        self.engine = engine
        self.set_s = 0.0
        ledger = Ledger(Store(folder / "store.sqlite3"), now=self.now, uptime=self.up)
        self.context = make_context(folder, engine, ledger=ledger, now=self.now)

    def now(self) -> datetime:
        return self.engine.clock() + timedelta(seconds=self.set_s)

    def up(self) -> Uptime:
        return Uptime(boot="this", s=self.engine.clock().timestamp())


SET_BACK = pytest.mark.parametrize("set_s", [-HOUR_S, -RAN_S, -30 * HOUR_S])


@SET_BACK
@pytest.mark.parametrize("managed", [False, True])
def test_down_with_a_clock_that_was_set_back_pays_for_all_hours(
    tmp_path: Path, engine: FakeEngine, set_s: float, managed: bool
) -> None:
    here = Here(tmp_path, engine)
    kept_launch(here.context, make_record(tmp_path, engine.clock, managed=managed))
    engine.clock.pass_s(RAN_S)
    here.set_s = set_s
    ended = down(here.context, here.context.ledger.get(RUN))
    assert engine.billed_usd() <= spent_usd(ended, now=here.now()) < engine.billed_usd() + 4
    assert engine.billed_usd() > 8 * 36


@SET_BACK
def test_machines_that_came_after_their_launch_was_closed_are_paid_for(
    tmp_path: Path, engine: FakeEngine, set_s: float
) -> None:
    here = Here(tmp_path, engine)
    record = make_record(tmp_path, engine.clock)
    record = ask(here.context, begin(here.context, record, SpendingLimits(), spot=False))
    ended = end(here.context, record, "cancelled", "it was taken back")
    engine.finish_requests()
    engine.clock.pass_s(RAN_S)
    here.set_s = set_s
    ended = down(here.context, ended)
    assert engine.live() == []
    assert spent_usd(ended, now=here.now()) >= engine.billed_usd() > 8 * 36


@SET_BACK
def test_nodes_of_a_failed_start_are_paid_for(
    tmp_path: Path, engine: FakeEngine, set_s: float
) -> None:
    here = Here(tmp_path, engine)
    engine.no_capacity, engine.partial_s = True, RAN_S
    places = (PricedPlace(infra="gcp/us-central1", usd_per_hour=Decimal(9)),)
    record = make_record(tmp_path, engine.clock, nodes=4, places=places)
    record = ask(here.context, begin(here.context, record, SpendingLimits(), spot=False))
    engine.finish_requests()
    here.set_s = set_s
    ended, _ = reconcile_run(here.context, record)
    assert ended.outcome == "no-capacity"
    assert spent_usd(ended, now=here.now()) >= engine.billed_usd() == 8 * 27


def test_a_count_of_another_start_of_this_machine_says_nothing(
    tmp_path: Path, engine: FakeEngine
) -> None:
    counts = iter([Uptime(boot="before", s=9.0), *[Uptime(boot="after", s=9e6)] * 99])
    path = tmp_path / "store.sqlite3"
    ledger = Ledger(Store(path), now=engine.clock, uptime=lambda: next(counts))
    context = make_context(tmp_path, engine, ledger=ledger)
    ended = down(context, launched(context, tmp_path))
    assert spent_usd(ended, now=engine.clock()) < 4
