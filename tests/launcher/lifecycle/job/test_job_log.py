"""The log of a job is kept up to a bound, its end with the guard's report in any case."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import launched, make_record

from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.job import job_log
from gpuplan.launcher.lifecycle.job.job_log import Copied, LogEnd, log_path
from gpuplan.launcher.lifecycle.resume import reconcile_run

GUARDED = 'gpuplan-guard: {"verdict": {"why": "max-cost", "text": "reached", "exit_code": 4}}\n'


def test_the_end_of_a_long_log_is_kept() -> None:
    end = LogEnd(most=10)
    for text in ("one\n", "two\n", "three\n"):
        assert end.write(text) == len(text)
    left_out = "gpuplan: 4 characters of this log before are not kept.\n"
    assert end.getvalue() == f"{left_out}two\nthree\n"
    end.write("x" * 25)
    assert end.getvalue().endswith(f"kept.\n{'x' * 10}")
    shown = io.StringIO()
    copied = Copied(shown)
    copied.write("all\n")
    assert (copied.getvalue(), shown.getvalue()) == ("all\n", "all\n")


def test_a_log_that_is_too_long_still_says_how_its_job_ended(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log.LogEnd.__init__, "__defaults__", (200,))
    engine.log = "step\n" * 1000 + GUARDED
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.end_job(record.cluster, "failed")
    ended, _ = reconcile_run(context, record)
    assert ended.outcome == "guarded"
    kept = log_path(ended, 1).read_text()
    assert len(kept) < 400 and kept.startswith("gpuplan: ") and kept.endswith(GUARDED)


def test_a_log_that_is_not_all_text_ends_its_launch_all_the_same(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    engine.log = "step \udcff\n" + GUARDED
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.end_job(record.cluster, "failed")
    ended, _ = reconcile_run(context, record)
    assert (ended.outcome, engine.live()) == ("guarded", [])
    assert log_path(ended, 1).read_text() == "step ?\n" + GUARDED
