"""A wait for machines that breaks off: the engine goes on, and so does the launch."""

from pathlib import Path

import pytest
from fake_engine import Clock, FakeEngine
from launch_records import RUN, make_record

from gpuplan.launcher.lifecycle.engine import EngineError
from gpuplan.launcher.lifecycle.following import follow
from gpuplan.launcher.lifecycle.resume import down, reconcile_run
from gpuplan.launcher.lifecycle.transitions import LaunchContext, ask, begin, wait_started
from gpuplan.launcher.store.accounting import spent_usd
from gpuplan.launcher.store.spending_limits import SpendingLimits


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(Clock(), wait_breaks=1)


def break_off(context: LaunchContext, folder: Path, *, managed: bool = False) -> None:
    """Launch, and lose the connection while the machines are started."""
    record = make_record(folder, Clock(context.now()), managed=managed)
    asked = ask(context, begin(context, record, SpendingLimits(), spot=managed))
    with pytest.raises(EngineError, match="broke off") as raised:
        wait_started(context, asked)
    assert f"gpuplan logs -f {RUN}" in str(raised.value)


@pytest.mark.parametrize("managed", [False, True])
def test_machines_that_come_up_after_it_are_owned_and_paid(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, managed: bool
) -> None:
    break_off(context, tmp_path, managed=managed)
    assert context.ledger.get(RUN).state == "requested"
    engine.finish_requests()
    engine.clock.pass_s(3600)
    after, finding = reconcile_run(context, context.ledger.get(RUN))
    assert (finding, after.is_open) == ("training", True)
    ended = follow(context, after)
    assert engine.live() == []
    assert spent_usd(ended, now=engine.clock()) >= engine.billed_usd() > 36


def test_it_can_be_followed_and_taken_back(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    break_off(context, tmp_path)
    ended = down(context, context.ledger.get(RUN))
    engine.finish_requests()
    assert (ended.outcome, engine.live()) == ("cancelled", [])


def test_a_connection_that_is_lost_as_the_job_is_submitted_leaves_it_running(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object) -> int:
        engine.finish_requests()
        raise EngineError("the connection was lost")

    monkeypatch.setattr(engine, "wait_launched", lose)
    break_off(context, tmp_path)
    assert engine.live() == [context.ledger.get(RUN).cluster]
    assert reconcile_run(context, context.ledger.get(RUN))[1] == "training"
