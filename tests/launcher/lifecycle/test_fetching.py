"""Results that are on the machines alone: until when, said wherever somebody can still act."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import launched, make_record

from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import EngineError
from gpuplan.launcher.lifecycle.resume import reconcile_run
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


def test_results_in_a_bucket_need_nobody(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    assert unattended_line(launched(context, make_record(tmp_path, engine.clock))) is None
