"""What goes wrong in training has a name, an exit code, and leaves the checkpoint before it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from runner_jobs import REPOSITORY, losses, make_job, metrics, plan_of, run, run_with_torchrun

from gpuplan.launcher.runner.job import CheckpointPolicy

pytestmark = [pytest.mark.slow, pytest.mark.spread]

MODEL = REPOSITORY / "tests" / "support" / "models" / "failing_model.py"
TIED = MODEL.with_name("unevenly_tied_decoder.py")
EVERY = CheckpointPolicy(every_steps=2)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_loss_that_is_no_number_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setenv("FAILING", "nan")
    # Two processes run one more pass, before the first step.
    monkeypatch.setenv("FAILING_AT", str(6 + processes))
    done = _run(tmp_path, processes)

    failure = _failure(tmp_path)
    assert done.returncode == 1
    assert (failure["class"], failure["exit_code"]) == ("LossNotFiniteError", 1)
    assert "step 7" in failure["message"] and "--clip-grad-norm" in failure["fix"]
    assert _checkpoints(tmp_path)[-1] == "step-00000006", "a checkpoint of NaN was written"
    assert metrics(tmp_path)[-1]["loss"] is None


@pytest.mark.parametrize("processes", [1, 2])
def test_weights_that_are_no_number_are_never_named_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setenv("FAILING", "gradient")
    monkeypatch.setenv("FAILING_AT", str(5 + processes))
    # The last step of all: it ended with 0.
    done = _run(tmp_path, processes, steps=6)

    failure = _failure(tmp_path)
    assert (done.returncode, failure["class"]) == (1, "WeightsNotFiniteError")
    assert "After step 6 weights are infinite or no number" in failure["message"]
    assert "the newest checkpoint is that of step 4, from before it" in failure["fix"]
    assert _checkpoints(tmp_path)[-1] == "step-00000004"
    monkeypatch.setenv("FAILING", "")
    assert _run(tmp_path, processes, steps=6).returncode == 0, "it could not go on"


def test_out_of_memory_says_what_was_predicted_and_what_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILING", "memory")
    peak = {"value": 3 * 2**30, "low": 2**31, "high": 2**32}
    done = _run(tmp_path, 1, peak_memory_bytes=peak)

    failure = _failure(tmp_path)
    assert (done.returncode, failure["class"]) == (1, "OutOfMemoryError")
    assert "predicted 3.0 GiB" in failure["message"]
    assert "smaller micro-batch" in failure["fix"]
    assert _checkpoints(tmp_path)[-1] == "step-00000006"
    # A run that goes on from there never runs step 6 again.
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_a_layout_that_would_untie_weights_is_refused_before_training(tmp_path: Path) -> None:
    params = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 100}
    plan = plan_of({"tensor": 2})
    run(make_job(tmp_path, TIED, plan=plan, params=params), 2)

    failure = _failure(tmp_path)
    assert (failure["class"], failure["exit_code"]) == ("NoFeasiblePlanError", 3)
    assert "embedding.weight and head.weight are one weight (tied)" in failure["message"]
    assert not (tmp_path / "metrics.jsonl").exists(), "it trained"


def test_an_error_of_one_rank_is_told_with_the_users_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILING", "error")
    # Under torchrun, which ends the rank that waits for the one that failed.
    done = _run(tmp_path, 2, start=run_with_torchrun)

    failure = _failure(tmp_path)
    assert done.returncode == 1
    assert (failure["class"], failure["rank"]) == ("UserFileError", 1)
    assert "failing_model.py" in failure["message"]
    assert "the batch is empty" in failure["message"]
    assert "the batch is empty" in (tmp_path / "traceback.txt").read_text()


def test_a_slow_rank_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILING", "slow")
    done = _run(tmp_path, 2, steps=51)

    assert done.returncode == 0
    assert "slow: rank 1 " in done.stderr


@pytest.mark.parametrize("grad_accum", [1, 2])
def test_parameters_that_the_loss_leaves_out_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grad_accum: int
) -> None:
    monkeypatch.setenv("FAILING", "unused")
    done = _run(tmp_path / "two", 2, steps=4, grad_accum=grad_accum)
    _run(tmp_path / "one", 1, steps=4, grad_accum=2 * grad_accum)

    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-6)


def test_the_hook_hears_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METRICS_FILE", str(tmp_path / "heard"))
    _run(tmp_path, 2, steps=5)

    heard = [line.split() for line in (tmp_path / "heard").read_text().splitlines()]
    told = [[str(line["step"]), f"{line['loss']:.6g}"] for line in metrics(tmp_path)]
    assert heard == told and len(heard) == 5


def test_a_run_record_is_left_that_validate_reads(tmp_path: Path) -> None:
    from gpuplan.profiles.records import read_records

    _run(tmp_path, 2, steps=6)

    (record,) = read_records(tmp_path / "record.json")
    assert record.measured.step_time_s is not None and record.measured.step_time_s > 0
    assert (record.layout.data, record.micro_batch, record.accelerators) == (2, 2, 2)
    assert (tmp_path / record.model).resolve() == MODEL


def _run(
    out_dir: Path,
    processes: int,
    *,
    steps: int = 20,
    start: Callable[[Path, int], subprocess.CompletedProcess[str]] = run,
    **plan: object,
) -> subprocess.CompletedProcess[str]:
    made = plan_of({"data": processes}, **plan)
    folder = make_job(out_dir, MODEL, plan=made, steps=steps, checkpoint=EVERY, run_id="t")
    return start(folder, processes)


def _failure(out_dir: Path) -> dict[str, str]:
    return json.loads((out_dir / "failure.json").read_text())


def _checkpoints(out_dir: Path) -> list[str]:
    return sorted(one.parent.name for one in (out_dir / "checkpoints").glob("step-*/run.json"))
