"""Two commands about one launch at once, as from two terminals: each ends only what it saw."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fake_engine import Clock, FakeEngine, Killed
from launch_records import RUN, make_context, make_record

from gpuplan.catalog.errors import GpuplanError, UsageError
from gpuplan.launcher.lifecycle.resume import down, reconcile_run, resume, stop
from gpuplan.launcher.lifecycle.transitions import LaunchContext, ask, attend, begin, wait_started
from gpuplan.launcher.store.accounting import spent_usd
from gpuplan.launcher.store.estimates import StoreError
from gpuplan.launcher.store.launch_record import LaunchRecord
from gpuplan.launcher.store.spending_limits import SpendingLimits


def launched(context: LaunchContext, folder: Path, **changes: Any) -> LaunchRecord:
    """Return a launch whose job is submitted by a command that is another process, and alive."""
    record = make_record(folder, Clock(context.now()), pid=os.getppid(), **changes)
    return wait_started(context, ask(context, begin(context, record, SpendingLimits(), spot=False)))


def at(engine: FakeEngine, call: str, other: Callable[[], object]) -> None:
    """Let another command do something as the engine gets to a call, once."""

    def cut(now: str) -> None:
        if now == call:
            engine.cut = lambda _call: None
            other()

    engine.cut = cut


@pytest.mark.parametrize("when", ["orders", "launch", "launch done", "wait_launched"])
def test_a_launch_that_is_taken_back_while_it_is_asked_for_leaves_no_machines(
    tmp_path: Path, engine: FakeEngine, when: str
) -> None:
    looking = make_context(tmp_path, engine)

    def take_back(*_: object) -> None:
        assert down(looking, looking.ledger.get(RUN)).outcome == "cancelled"

    context = make_context(tmp_path, engine, on_orders=take_back if when == "orders" else None)
    if when != "orders":
        at(engine, when, take_back)
    with pytest.raises(Exception, match="ended|no longer|cancelled"):
        launched(context, tmp_path)
    engine.finish_requests()
    after = context.ledger.get(RUN)
    assert (after.state, after.outcome, engine.live()) == ("ended", "cancelled", [])
    assert spent_usd(after, now=engine.clock()) >= engine.billed_usd()
    if when == "orders":
        assert engine.tasks == []


def test_a_look_while_another_command_tears_down_does_not_lose_a_success(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, tmp_path)
    at(engine, "down done", lambda: reconcile_run(context, context.ledger.get(RUN)))
    ended = attend(context, record)
    assert (ended.outcome, ended.last and ended.last.outcome) == ("succeeded", "succeeded")
    with pytest.raises(UsageError, match="all its steps"):
        resume(context, ended, SpendingLimits())


def test_a_look_that_is_overtaken_by_the_end_leaves_it_as_it_was_closed(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, tmp_path)
    at(engine, "requests done", lambda: attend(context, record))
    after, finding = reconcile_run(context, record)
    assert (finding, after.outcome) == ("gone", "succeeded")
    assert after == context.ledger.get(RUN)
    assert "ended: lost" not in " ".join(what for _, what in context.ledger.events(RUN))


def test_a_command_that_missed_the_next_attempt_leaves_its_machines(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    stale = launched(context, tmp_path)
    engine.end_job(stale.cluster, "failed")
    ended, _ = reconcile_run(context, stale)
    again = resume(context, ended, SpendingLimits())
    with pytest.raises(UsageError, match="launched again"):
        attend(context, stale)
    assert context.ledger.get(RUN) == again
    assert engine.live() == [again.cluster]
    # One that only looks sees the run as it stands now.
    after, _ = reconcile_run(context, stale)
    assert (after.outcome, len(after.attempts), engine.live()) == ("succeeded", 2, [])


def test_a_stop_that_waits_while_the_run_is_launched_again_leaves_its_machines(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = launched(context, tmp_path)
    monkeypatch.setattr(engine, "execute", lambda *_: None)

    def launch_again(_seconds: float) -> None:
        engine.end_job(record.cluster, "failed")
        resume(context, reconcile_run(context, context.ledger.get(RUN))[0], SpendingLimits())

    with pytest.raises(UsageError, match="launched again"):
        stop(context, record, wait=launch_again)
    after = context.ledger.get(RUN)
    assert (after.is_open, len(after.attempts), engine.live()) == (True, 2, [record.cluster])


def test_machines_noted_late_are_not_those_of_the_next_attempt(
    tmp_path: Path, engine: FakeEngine
) -> None:
    context = make_context(tmp_path, engine)
    record = launched(context, tmp_path)

    def note(_record: LaunchRecord, _at: datetime) -> None:
        with pytest.raises(UsageError, match="launched again"):
            attend(context, record)

    engine.end_job(record.cluster, "failed")
    ended, _ = reconcile_run(context, record)
    again = resume(make_context(tmp_path, engine, on_orders=note), ended, SpendingLimits())
    assert (again.is_open, len(again.attempts), len(engine.live())) == (True, 2, 1)


@pytest.mark.parametrize("managed", [False, True])
def test_a_launch_that_another_look_has_closed_is_not_opened_again(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, managed: bool
) -> None:
    record = make_record(tmp_path, engine.clock, managed=managed)
    wait_started(context, ask(context, begin(context, record, SpendingLimits(), spot=managed)))
    # The command that launched it died before it kept its job.
    context.ledger.update(
        RUN,
        lambda one: one.with_last(job_id=None).model_copy(update={"state": "requested"}),
        what="never written",
    )
    engine.end_job(record.cluster)
    call = "managed_jobs done" if managed else "jobs done"
    at(engine, call, lambda: reconcile_run(context, context.ledger.get(RUN)))
    with suppress(GpuplanError):
        reconcile_run(context, context.ledger.get(RUN))
    after = context.ledger.get(RUN)
    assert (after.state, after.outcome, engine.live()) == ("ended", "succeeded", [])


def test_a_launch_that_an_earlier_version_opened_again_is_closed(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    ended = attend(context, launched(context, tmp_path))
    opened = context.ledger.update(
        RUN, lambda one: one.model_copy(update={"state": "running"}), what="reconciled: running"
    )
    after, _ = reconcile_run(context, opened)
    assert (after.state, after.outcome) == ("ended", ended.outcome)
    assert spent_usd(after, now=engine.clock()) == spent_usd(ended, now=engine.clock())


def test_a_run_that_has_trained_is_not_launched_again_while_its_machines_are_torn_down(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, tmp_path)

    def launch_again() -> None:
        with pytest.raises(UsageError, match="has trained all its steps"):
            resume(context, context.ledger.get(RUN), SpendingLimits())

    at(engine, "down done", launch_again)
    ended = attend(context, record)
    assert (ended.outcome, len(engine.books), engine.live()) == ("succeeded", 1, [])
    assert ended.last is not None and not ended.last.is_bound, "whoever saw it end knows better"


def test_a_command_that_is_killed_while_it_tears_down_does_not_lose_a_success(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, tmp_path)

    def die() -> None:
        raise Killed

    at(engine, "down done", die)
    with pytest.raises(Killed):
        attend(context, record)
    after, _ = reconcile_run(context, context.ledger.get(RUN))
    assert (after.outcome, engine.live()) == ("succeeded", [])
    assert spent_usd(after, now=engine.clock()) >= engine.billed_usd()


@pytest.mark.parametrize("fetch", [None, "results"])
def test_machines_go_where_the_end_of_their_job_cannot_be_kept(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, fetch: str | None
) -> None:
    def refuse(*_: object, **__: object) -> LaunchRecord:
        raise StoreError("the disk is full")

    context = make_context(tmp_path, engine, keep_run=refuse)
    engine.log += 'gpuplan-record: {"id": "net-1"}\n'
    record = launched(context, tmp_path, fetch=fetch and str(tmp_path / fetch))

    at(engine, "tail done", lambda: monkeypatch.setattr(context.ledger, "update", refuse))
    with pytest.raises(StoreError, match="full"):
        attend(context, record)
    assert engine.live() == []
    monkeypatch.undo()
    after, _ = reconcile_run(context, context.ledger.get(RUN))
    assert not after.is_open and spent_usd(after, now=engine.clock()) >= engine.billed_usd()
