"""A rank that hangs or is lost is named, and what fails in a process that loads data is the user's.

On real processes: the others wait for it in a collective.
"""

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from runner_jobs import REPOSITORY, make_job, plan_of, run
from shortened import shorten

from gpuplan.launcher.runner.job import CheckpointPolicy, read_job
from gpuplan.launcher.runner.main import fail
from gpuplan.launcher.runner.reporting.failures.worker_failure import worker_failure

pytestmark = [pytest.mark.slow, pytest.mark.spread]

MODEL = REPOSITORY / "tests" / "support" / "models" / "failing_model.py"
EVERY = CheckpointPolicy(every_steps=2)


def failure_of(out_dir: Path, *, timeout_s: float = 60, workers: int | None = None) -> dict:
    folder = make_job(
        out_dir,
        MODEL,
        plan=plan_of({"data": 2}),
        steps=20,
        checkpoint=EVERY,
        timeout_s=timeout_s,
        workers=workers,
    )
    # The others do not differ in when they notice: one alone waits for the one that is lost.
    shorten(folder, LISTEN_S=1.0)
    assert run(folder, 2).returncode != 0
    return json.loads((out_dir / "failure.json").read_text())


def test_a_rank_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILING", "hang")
    monkeypatch.setenv("HANG_UNTIL", str(tmp_path / "failure.json"))
    failure = failure_of(tmp_path, timeout_s=10)

    assert failure["message"].startswith("Rank 1 did not answer the others within 10 s")
    assert "it hangs, or is lost" in failure["message"]
    assert failure["rank"] == 0 and "fault of gpuplan" not in failure["fix"]
    assert "the same command continues from the checkpoint of step" in failure["fix"]


def test_a_rank_that_is_lost_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILING", "die")
    failure = failure_of(tmp_path)

    assert failure["message"].startswith("Rank 1 did not answer the others any more")
    assert "its connection is lost" in failure["message"]
    assert "fault of gpuplan" not in failure["fix"]


def test_a_file_that_a_loader_does_not_find_is_told_with_the_users_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILING", "file")
    failure = failure_of(tmp_path, workers=1)

    assert failure["class"] == "UserFileError"
    assert "failing_model.py:" in failure["message"] and "in __getitem__" in failure["message"]
    assert "No such file or directory: 'samples/5.bin'" in failure["message"]
    assert "in a process that loads data" in failure["message"]


def test_a_loader_that_the_system_killed_is_no_fault_of_gpuplan() -> None:
    said = RuntimeError("DataLoader worker (pid 71) is killed by signal: Killed. ")
    error = worker_failure(said, MODEL)
    assert error is not None and "is killed by signal: Killed" in error.message
    assert worker_failure(RuntimeError("shape mismatch"), MODEL) is None


def test_a_full_disk_is_no_fault_of_gpuplan(tmp_path: Path, require: Callable[..., None]) -> None:
    require("posix", "/dev/full")
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    failure = failure_of(tmp_path)

    assert failure["message"].startswith("The disk is full")
    assert "the same command then continues" in failure["fix"]


def test_a_failure_that_cannot_be_written_is_said_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_job(tmp_path, MODEL, plan=plan_of())
    (tmp_path / "file").write_text("")
    job = replace(read_job(folder), out_dir=tmp_path / "file")

    assert fail(job, OSError(errno.ENOSPC, "No space left on device")) == 1
    said = capsys.readouterr().err
    assert said.startswith("Error: The disk is full") and "Traceback" not in said
