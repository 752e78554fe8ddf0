"""Jobs that were ended in the engine: by somebody, or by a fault of its controller."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import launched, make_record

from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.resume import reconcile_run, stop
from gpuplan.launcher.lifecycle.transitions import settle


@pytest.mark.parametrize("managed", [True, False])
def test_a_job_that_was_cancelled_is_stopped_and_not_lost(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, managed: bool
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, managed=managed))
    verdict = '{"why": "signal", "text": "SIGTERM came from outside the run.", "exit_code": 143}'
    engine.log += f'gpuplan-guard: {{"verdict": {verdict}}}\n'
    if managed:
        ended = stop(context, record, wait=engine.clock.pass_s)
    else:
        engine.end_job(record.cluster, "cancelled")
        ended, _ = reconcile_run(context, record)
    assert (ended.outcome, engine.live()) == ("stopped", [])
    assert ended.why == "the job was cancelled"


def test_a_controller_that_failed_may_have_left_machines(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, managed=True))
    engine.end_job(record.cluster, "failed")
    (job,) = engine.managed_jobs()
    assert "console" not in (settle(context, record, job).why or "")
    other = launched(
        context, make_record(tmp_path, engine.clock, managed=True, run="net-20261122-130000-b2c3d4")
    )
    engine.end_job(other.cluster, "failed")
    job = replace(engine.managed_jobs()[0], may_leave_machines=True)
    assert "may have left its machines on" in (settle(context, other, job).why or "")
