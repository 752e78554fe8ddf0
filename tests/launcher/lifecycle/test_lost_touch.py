"""A connection to SkyPilot's server that is lost: it ends nothing, whatever was asked."""

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import RUN, launched, make_record

from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import LostTouchError
from gpuplan.launcher.lifecycle.following import follow, show_and_follow
from gpuplan.launcher.lifecycle.resume import reconcile_run
from gpuplan.launcher.lifecycle.transitions import ask, begin, wait_started
from gpuplan.launcher.store.spending_limits import SpendingLimits


def lose(*_: object, **__: object) -> int:
    raise LostTouchError("it did not answer in time")


@pytest.mark.parametrize("managed", [False, True])
def test_a_wait_that_loses_the_server_leaves_a_job_that_has_ended_to_be_settled(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, managed: bool
) -> None:
    record = make_record(tmp_path, engine.clock, managed=managed, fetch=None)
    asked = ask(context, begin(context, record, SpendingLimits(), spot=managed))
    wait = "wait_managed" if managed else "wait_launched"
    whole = getattr(engine, wait)

    def wait_and_lose(request_id: str, out: io.StringIO) -> int:
        whole(request_id, out)
        engine.end_job(record.cluster)
        return lose()

    setattr(engine, wait, wait_and_lose)
    with pytest.raises(Exception, match="broke off"):
        wait_started(context, asked)
    assert context.ledger.get(RUN).is_open
    setattr(engine, wait, whole)
    after, finding = reconcile_run(context, context.ledger.get(RUN))
    assert (finding, after.outcome, engine.live()) == ("job-ended", "succeeded", [])


def test_a_request_that_may_still_arrive_keeps_its_launch_open(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    begun = begin(context, make_record(tmp_path, engine.clock), SpendingLimits(), spot=False)
    whole, late = engine.launch, []

    def launch(*given: object) -> str:
        late.append(given)
        return str(lose())

    engine.launch = launch  # type: ignore[method-assign]
    with pytest.raises(LostTouchError):
        ask(context, begun)
    assert context.ledger.get(RUN).is_open, "the server does not know it yet, and may in a moment"
    whole(*late[0])
    engine.finish_requests()
    ended = follow(context, context.ledger.get(RUN))
    assert (ended.outcome, engine.live(), len(engine.books)) == ("succeeded", [], 1)


def test_a_server_that_is_lost_while_it_is_asked_why_a_start_failed_says_nothing_of_it(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    engine.no_capacity = True
    begun = begin(context, make_record(tmp_path, engine.clock), SpendingLimits(), spot=False)
    record = ask(context, begun)
    engine.finish_requests()
    whole = engine.wait_launched
    engine.wait_launched = lose  # type: ignore[method-assign]
    with pytest.raises(LostTouchError):
        reconcile_run(context, record)
    assert context.ledger.get(RUN).is_open
    engine.wait_launched = whole  # type: ignore[method-assign]
    assert reconcile_run(context, record)[0].outcome == "no-capacity"


@pytest.mark.parametrize("call", ["requests", "cluster", "jobs", "down", "tail"])
def test_a_server_that_is_lost_at_any_call_ends_no_launch(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, call: str
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.end_job(record.cluster)
    whole = getattr(engine, call)
    setattr(engine, call, lose)
    try:
        reconcile_run(context, record)
    except LostTouchError:
        assert context.ledger.get(RUN).is_open
    setattr(engine, call, whole)
    after, _ = reconcile_run(context, context.ledger.get(RUN))
    assert (after.outcome, engine.live()) == ("succeeded", [])


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("call", ["tail", "requests"])
def test_a_network_that_is_away_for_an_hour_does_not_end_what_follows(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, managed: bool, call: str
) -> None:
    """With --fetch, the results go with the machines where no command is there to bring them."""
    said: list[str] = []
    context = replace(context, tell=said.append)
    fetch = None if managed else str(tmp_path / "results")
    record = launched(context, make_record(tmp_path, engine.clock, managed=managed, fetch=fetch))
    back_at = engine.clock() + timedelta(hours=1)
    names = (call, "managed_jobs", "tail_managed") if managed else (call,)
    for name in names:
        setattr(engine, name, _away_until(engine, name, back_at))
    ended = follow(context, record, wait=engine.clock.pass_s)
    assert (ended.outcome, engine.live()) == ("succeeded", [])
    assert engine.clock() - back_at < timedelta(minutes=15)
    assert len([one for one in said if "did not answer" in one]) <= 2, said


def _away_until(engine: FakeEngine, name: str, back_at: datetime) -> Callable[..., object]:
    whole = getattr(engine, name)

    def call(*given: object, **named: object) -> object:
        return whole(*given, **named) if engine.clock() >= back_at else lose()

    return call


@pytest.mark.parametrize("managed", [False, True])
def test_a_log_that_is_shown_to_its_end_survives_a_lost_server(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, managed: bool
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, managed=managed))
    back_at = engine.clock() + timedelta(minutes=10)
    for name in ("tail", "managed_jobs", "tail_managed", "cluster", "requests"):
        setattr(engine, name, _away_until(engine, name, back_at))
    ended = show_and_follow(context, record, io.StringIO(), wait=engine.clock.pass_s)
    assert (ended.outcome, engine.live()) == ("succeeded", [])
