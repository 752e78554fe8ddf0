"""Jobs that somebody cancelled in the engine: what became of them, and of the cost."""

from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import launched, make_record

from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.resume import reconcile_run, stop


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
