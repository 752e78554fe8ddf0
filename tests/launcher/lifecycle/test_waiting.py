"""A managed job that waits for machines is held to its limits, though no guard runs then."""

from __future__ import annotations

import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fake_engine import START, FakeEngine
from launch_records import launched, make_record

from gpuplan.launcher.bundle import write_orders
from gpuplan.launcher.guard.orders import Orders
from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import EngineError
from gpuplan.launcher.lifecycle.reconcile.reconcile import reconcile
from gpuplan.launcher.lifecycle.resume import reconcile_run
from gpuplan.launcher.lifecycle.transitions import attend
from gpuplan.launcher.lifecycle.waiting import Watch
from gpuplan.launcher.store.launch_record import LaunchRecord

HOUR_S = 3600.0
CONTROLLER = Decimal("0.20")


def waiting(
    context: LaunchContext, engine: FakeEngine, folder: Path, **limits: Any
) -> LaunchRecord:
    """Return a launch on spot machines that were taken away after ten minutes."""
    record = make_record(folder, engine.clock, managed=True, controller_usd_per_hour=CONTROLLER)
    (Path(record.folder) / "job").mkdir()
    began_s = START.timestamp()
    orders = Orders(run_id=record.run, usd_per_hour=36.2, requested_at_s=began_s, **limits)
    write_orders(Path(record.folder) / "job", orders)
    record = launched(context, record)
    engine.clock.pass_s(600)
    engine.preempt(record.cluster)
    return record


@pytest.mark.parametrize(
    ("limits", "after_s", "why", "text"),
    [
        (
            {"deadline_s": START.timestamp() + 5 * HOUR_S},
            5 * HOUR_S,
            "deadline",
            "its deadline (2026-11-22 17:00 UTC) passed while it waited for machines",
        ),
        (
            {"max_cost_usd": 60.0, "after_usd": 0.03},
            300 * HOUR_S,
            "max-cost",
            "while it waited for machines, and --max-cost is $60.00",
        ),
    ],
)
def test_a_wait_beyond_a_limit_is_ended_by_whoever_looks(
    context: LaunchContext,
    engine: FakeEngine,
    tmp_path: Path,
    limits: dict[str, float],
    after_s: float,
    why: str,
    text: str,
) -> None:
    record = waiting(context, engine, tmp_path, **limits)
    engine.clock.pass_s(after_s / 2)
    record, finding = reconcile_run(context, record)
    assert (finding, record.is_open) == ("waiting", True)
    (told,) = reconcile(context)
    assert told.kind == "running"
    assert told.text.endswith("SkyPilot's controller costs $0.20 an hour")

    engine.clock.pass_s(after_s / 2)
    record, _ = reconcile_run(context, record)
    assert (record.outcome, record.last and record.last.guard_why) == ("guarded", why)
    assert text in (record.why or "")
    assert [one.status for one in engine.managed_jobs()] == ["cancelled"]
    assert reconcile_run(context, record)[1] == "nothing"


def test_a_job_that_trains_is_left_to_its_guard(
    context: LaunchContext, engine: FakeEngine, tmp_path: Path
) -> None:
    record = make_record(tmp_path, engine.clock, managed=True)
    (Path(record.folder) / "job").mkdir()
    orders = Orders(run_id=record.run, usd_per_hour=36, requested_at_s=0.0, deadline_s=1.0)
    write_orders(Path(record.folder) / "job", orders)
    record, finding = reconcile_run(context, launched(context, record))
    assert (finding, record.is_open) == ("training", True)


@pytest.mark.parametrize("limits", [{}, {"deadline_s": START.timestamp() + 400 * HOUR_S}])
def test_without_a_limit_that_is_passed_it_waits_on(
    context: LaunchContext, engine: FakeEngine, tmp_path: Path, limits: dict[str, float]
) -> None:
    record = waiting(context, engine, tmp_path, **limits)
    engine.clock.pass_s(300 * HOUR_S)
    assert reconcile_run(context, record)[0].is_open


def test_who_follows_the_log_ends_it_too(
    context: LaunchContext,
    engine: FakeEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = waiting(context, engine, tmp_path, deadline_s=START.timestamp() + HOUR_S)
    cancelled = threading.Event()

    def followed(*_job: object, **_how: object) -> None:
        engine.clock.pass_s(2 * HOUR_S)
        assert cancelled.wait(60), "nobody ended it"

    def cancel(job_id: int, *, gracefully: bool) -> None:
        engine.end_job(record.cluster, "cancelled")
        cancelled.set()

    monkeypatch.setattr("gpuplan.launcher.lifecycle.waiting.LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(engine, "tail_managed", followed)
    monkeypatch.setattr(engine, "cancel_managed", cancel)
    ended = attend(context, record)
    assert (ended.outcome, ended.last and ended.last.guard_why) == ("guarded", "deadline")


def test_a_look_that_fails_is_tried_again(
    context: LaunchContext,
    engine: FakeEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = waiting(context, engine, tmp_path, deadline_s=START.timestamp())
    jobs, looks = engine.managed_jobs, iter([True, False])

    def managed_jobs() -> object:
        if next(looks):
            raise EngineError("no answer")
        return jobs()

    monkeypatch.setattr(engine, "managed_jobs", managed_jobs)
    with Watch(context, record, wait=lambda left, _seconds: left.is_set()) as watch:
        last_s = time.monotonic() + 60
        while watch.passed is None and time.monotonic() < last_s:
            time.sleep(0.001)
    assert watch.passed is not None
    assert watch.passed.why == "deadline"
