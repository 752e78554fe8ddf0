"""Results that are on the machines alone: until when, said wherever somebody can still act."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import launched, make_context, make_record

from gpuplan.cli.options.launches import end_each
from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import EngineError, LostMachineError
from gpuplan.launcher.lifecycle.following import follow
from gpuplan.launcher.lifecycle.resume import down, reconcile_run, stop
from gpuplan.launcher.store.accounting import closing_line
from gpuplan.launcher.store.launch_record import LaunchRecord
from gpuplan.launcher.store.unattended import unattended_line


def fetched(
    folder: Path, context: LaunchContext, engine: FakeEngine, minutes: int | None
) -> LaunchRecord:
    results = str(folder / "results")
    record = make_record(folder, engine.clock, fetch=results, idle_minutes=minutes)
    return launched(context, record)


@pytest.mark.parametrize("minutes", [60, None])
def test_a_fetch_that_fails_says_until_when_it_can_be_tried(
    tmp_path: Path,
    context: LaunchContext,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    minutes: int | None,
) -> None:
    record = fetched(tmp_path, context, engine, minutes)
    engine.end_job(record.cluster)
    ended_at = engine.clock()
    engine.clock.pass_s(300)

    def refuse(*_: object) -> None:
        raise EngineError("The disk is full.", fix="make room.")

    monkeypatch.setattr(engine, "copy_back", refuse)
    with pytest.raises(EngineError, match=r"^The disk is full\. ") as refused:
        reconcile_run(context, record)
    assert refused.value.fix == "make room."
    if minutes is None:
        assert "alone, and go with them" in refused.value.message
        return
    gone_at = (ended_at + timedelta(minutes=60)).astimezone()
    assert f"deletes them with its machines at about {gone_at:%H:%M} on" in refused.value.message


def test_a_launch_whose_machines_went_says_that_its_results_did(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = fetched(tmp_path, context, engine, 60)
    assert "deleted with them 60 minutes after its job unless" in (unattended_line(record) or "")
    engine.end_job(record.cluster)
    engine.clock.pass_s(3700)
    engine.take_machines(record.cluster)
    ended, _ = reconcile_run(context, record)
    assert ended.outcome == "lost"
    assert f"not brought to {record.fetch} by then is gone with them" in (ended.why or "")
    assert unattended_line(ended) is None


def lose_times(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Let the network be away for so many tries to bring results; return what counts those left."""
    whole, left = engine.copy_back, [times]

    def copy_back(cluster: str, source: str, target: Path) -> bool:
        if left[0]:
            left[0] -= 1
            raise LostMachineError("The connection timed out.")
        return whole(cluster, source, target)

    monkeypatch.setattr(engine, "copy_back", copy_back)
    return left


def test_a_network_that_is_away_while_results_are_brought_costs_none_of_them(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    context = make_context(tmp_path, engine, tell=said.append)
    record = fetched(tmp_path, context, engine, 60)
    left = lose_times(engine, monkeypatch, 3)
    ended = follow(context, record, wait=engine.clock.pass_s)
    assert (ended.outcome, engine.live(), left) == ("succeeded", [], [0])
    assert engine.copied == [tmp_path / "results"]
    assert [one for one in said if "timed out" in one and "tried again" in one]
    assert closing_line(ended, now=engine.clock()).endswith(f"saved at {record.results}")


def test_what_stops_a_run_waits_for_its_results_too(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = fetched(tmp_path, context, engine, 60)
    lose_times(engine, monkeypatch, 2)
    ended = stop(context, record, wait=engine.clock.pass_s)
    assert (engine.live(), engine.copied) == ([], [tmp_path / "results"])
    assert not ended.is_open


@pytest.mark.parametrize(("times", "is_here"), [(3, True), (1000, False)])
def test_what_takes_machines_down_waits_a_while_for_the_results_of_a_job_that_ended(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, times: int, is_here: bool
) -> None:
    said: list[str] = []
    context = make_context(tmp_path, engine, tell=said.append)
    record = fetched(tmp_path, context, engine, 60)
    engine.end_job(record.cluster)
    began = engine.clock()
    lose_times(engine, monkeypatch, times)
    ended = down(context, record, wait=engine.clock.pass_s)
    assert (ended.is_open, engine.live(), bool(engine.copied)) == (False, [], is_here)
    assert engine.clock() - began < timedelta(minutes=30)
    (tries,) = [one for one in said if "tried again for 10 minutes" in one]
    assert "timed out" in tries
    assert (f"saved at {record.results}" in closing_line(ended, now=engine.clock())) == is_here


def test_no_launch_goes_on_as_the_results_of_another_are_waited_for(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = fetched(tmp_path, context, engine, 60)
    other = launched(context, make_record(tmp_path, engine.clock, run="net-20261122-120000-b2b2b2"))
    engine.end_job(record.cluster)
    lose_times(engine, monkeypatch, 2)
    lives: list[list[str]] = []

    def wait(seconds: float) -> None:
        lives.append(engine.live())
        engine.clock.pass_s(seconds)

    def end(context: LaunchContext, run: str) -> LaunchRecord:
        return down(context, context.ledger.find(run), wait=wait)

    def at_once(context: LaunchContext, run: str) -> LaunchRecord:
        return down(context, context.ledger.find(run), is_patient=False)

    assert end_each(context, [record.run, other.run], end, at_once) == 0
    assert lives == [[record.cluster]]
    assert (engine.live(), engine.copied) == ([], [tmp_path / "results"])


def test_machines_that_go_before_the_network_is_back_end_the_launch(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = fetched(tmp_path, context, engine, 60)
    lose_times(engine, monkeypatch, 1000)
    began = engine.clock()

    def wait(seconds: float) -> None:
        engine.clock.pass_s(seconds)
        if engine.clock() - began > timedelta(hours=2):
            engine.take_machines(record.cluster)

    ended = follow(context, record, wait=wait)
    assert ended.outcome == "lost"
    assert closing_line(ended, now=engine.clock()).endswith(f"no results are at {record.results}")


def test_a_job_that_left_no_results_keeps_no_machine(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = fetched(tmp_path, context, engine, 60)
    engine.leaves_results = False
    engine.end_job(record.cluster, "failed")
    ended, _ = reconcile_run(context, record)
    assert (ended.outcome, engine.live()) == ("failed", [])
    assert (ended.why or "").endswith("it left no results")
    assert "no results are at" in closing_line(ended, now=engine.clock())
    told = [what for _, what in context.ledger.events(record.run)]
    assert "it left no results to bring" in told


def test_what_is_taken_down_without_its_results_is_not_said_to_be_saved(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    ended = down(context, fetched(tmp_path, context, engine, 60))
    assert "no results are at" in closing_line(ended, now=engine.clock())


def test_results_in_a_bucket_need_nobody(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    assert unattended_line(launched(context, make_record(tmp_path, engine.clock))) is None
