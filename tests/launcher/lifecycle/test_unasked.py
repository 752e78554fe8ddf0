"""A managed job that ended before machines were asked for costs its controller alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_engine import FakeEngine
from launch_records import launched, make_record

from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import EngineError
from gpuplan.launcher.lifecycle.resume import down, reconcile_run
from gpuplan.launcher.lifecycle.transitions import end_waiting
from gpuplan.launcher.lifecycle.waiting import Passed
from gpuplan.launcher.skypilot.rows import managed_jobs_of
from gpuplan.launcher.store.accounting import closing_line, node_hours, spent_usd
from gpuplan.launcher.store.launch_record import LaunchRecord
from gpuplan.planner.cost.launch_cost import CONTROLLER_IDLE_HOURS

CONTROLLER = Decimal("0.60")
Close = Callable[[LaunchContext, FakeEngine, LaunchRecord], LaunchRecord]


def waiting(
    context: LaunchContext, engine: FakeEngine, folder: Path, *, is_unasked: bool
) -> LaunchRecord:
    """Return a launch that has waited for two hours."""
    record = make_record(folder, engine.clock, managed=True, controller_usd_per_hour=CONTROLLER)
    record = launched(context, record)
    engine._managed = [
        replace(one, status="waiting", started_at=None, is_unasked=is_unasked)
        for one in engine._managed
    ]
    engine.clock.pass_s(7200)
    return reconcile_run(context, record)[0]


def taken_back(context: LaunchContext, engine: FakeEngine, record: LaunchRecord) -> LaunchRecord:
    return down(context, record)


def cancelled_elsewhere(
    context: LaunchContext, engine: FakeEngine, record: LaunchRecord
) -> LaunchRecord:
    engine.end_job(record.cluster, "cancelled")
    # SkyPilot 0.14 writes no end of such a job.
    engine._managed = [replace(one, ended_at=None) for one in engine._managed]
    return reconcile_run(context, record)[0]


def guarded(context: LaunchContext, engine: FakeEngine, record: LaunchRecord) -> LaunchRecord:
    return end_waiting(context, record, Passed("deadline", "its deadline passed"))


@pytest.mark.parametrize(
    ("close", "outcome"),
    [(taken_back, "cancelled"), (cancelled_elsewhere, "cancelled"), (guarded, "guarded")],
)
def test_its_controller_alone_is_counted_where_that_is_known(
    context: LaunchContext, engine: FakeEngine, tmp_path: Path, close: Close, outcome: str
) -> None:
    record = waiting(context, engine, tmp_path, is_unasked=True)
    assert record.last is not None
    waited_s = (engine.clock() - record.last.asked_at).total_seconds()

    ended = close(context, engine, record)

    assert ended.outcome == outcome
    assert ended.last is not None and not ended.last.is_bound
    now = engine.clock()
    hours = Decimal(str(waited_s)) / 3600 + CONTROLLER_IDLE_HOURS
    assert spent_usd(ended, now=now) == pytest.approx(hours * CONTROLLER, abs=Decimal("0.01"))
    assert node_hours(ended, now=now) == 0
    line = closing_line(ended, now=now)
    assert "at most" not in line and line.endswith("nothing was rented")
    if outcome == "cancelled":
        assert "no machine was ever asked for" in str(ended.why)


@pytest.mark.parametrize("close", [taken_back, cancelled_elsewhere, guarded])
def test_a_wait_that_began_counts_at_most_as_if_machines_had_been_there(
    context: LaunchContext, engine: FakeEngine, tmp_path: Path, close: Close
) -> None:
    ended = close(context, engine, waiting(context, engine, tmp_path, is_unasked=False))

    assert spent_usd(ended, now=engine.clock()) > Decimal(72)
    assert ended.last is not None and ended.last.is_bound
    assert "at most" in closing_line(ended, now=engine.clock())


def test_an_engine_that_says_nothing_afterwards_leaves_it_a_bound(
    context: LaunchContext,
    engine: FakeEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = waiting(context, engine, tmp_path, is_unasked=True)
    cancel, jobs = engine.cancel_managed, engine.managed_jobs

    def cancelled(job_id: int, *, gracefully: bool) -> None:
        cancel(job_id, gracefully=gracefully)

        def silent() -> Any:
            raise EngineError("the server does not answer")

        monkeypatch.setattr(engine, "managed_jobs", silent)

    monkeypatch.setattr(engine, "cancel_managed", cancelled)
    ended = guarded(context, engine, record)
    monkeypatch.setattr(engine, "managed_jobs", jobs)

    assert ended.last is not None and ended.last.is_bound
    assert spent_usd(ended, now=engine.clock()) > Decimal(72)


@pytest.mark.parametrize(
    ("submitted_at", "start_at", "is_unasked"),
    [(None, None, True), (1.8e9, None, False), (1.8e9, 1.8e9, False)],
)
def test_skypilot_tells_it_by_when_a_job_was_submitted(
    submitted_at: float | None, start_at: float | None, is_unasked: bool
) -> None:
    row: dict[str, Any] = {
        "job_id": 1,
        "job_name": "net",
        "status": SimpleNamespace(value="CANCELLED"),
        "submitted_at": submitted_at,
        "start_at": start_at,
        "end_at": None,
        "recovery_count": 0,
        "infra": "-",
        "failure_reason": None,
    }
    second = {**row, "task_id": 1, "submitted_at": None, "start_at": None}

    assert managed_jobs_of([row, second])[0].is_unasked == is_unasked


def test_a_row_that_does_not_say_when_it_was_submitted_says_nothing() -> None:
    row = {
        "job_id": 1,
        "job_name": "net",
        "status": SimpleNamespace(value="CANCELLED"),
        "start_at": None,
        "end_at": None,
        "recovery_count": 0,
        "infra": "-",
        "failure_reason": None,
    }
    assert not managed_jobs_of([row])[0].is_unasked
