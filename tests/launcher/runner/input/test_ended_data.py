"""Data that end before the last step end the run, whole, on all ranks in the same step."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import REPOSITORY, losses, make_job, plan_of, run

from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.training_options import TrainingOptions

pytestmark = pytest.mark.slow

MODELS = REPOSITORY / "tests" / "support" / "models"
STREAM, SAMPLES = MODELS / "stream_model.py", MODELS / "dataset_model.py"
FSDP = {"data": 2, "shard": 2, "zero_stage": 3}


@pytest.fixture(autouse=True)
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SAMPLES_READ", str(tmp_path / "read"))
    return tmp_path / "read"


def started(
    folder: Path, layout: dict[str, Any], params: dict[str, Any], micro: int = 1, **fields: Any
) -> subprocess.CompletedProcess[str]:
    """Run 12 steps of the stream, one sample a rank and step."""
    given = {"steps": 12, "workers": 0, "checkpoint": CheckpointPolicy(every_steps=100), **fields}
    plan = plan_of(layout, micro_batch=micro)
    return run(make_job(folder, STREAM, plan=plan, params=params, **given), layout.get("data", 1))


def record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "record.json").read_text())


@pytest.mark.parametrize(
    ("layout", "size", "by", "workers", "steps"),
    [
        ({}, 5, "", 0, 5),
        ({"data": 2}, 9, "", 0, 4),
        # The first rank has a fifth sample, the second has not.
        ({"data": 2}, 9, "ranks", 0, 4),
        (FSDP, 9, "ranks", 0, 4),
        (FSDP, 10, "ranks+workers", 2, 4),
    ],
)
def test_a_stream_that_is_used_up_ends_the_run_on_every_rank(
    tmp_path: Path, layout: dict[str, Any], size: int, by: str, workers: int, steps: int
) -> None:
    params = {"size": size, "by": by, "once": True}
    done = started(tmp_path, layout, params, workers=workers)

    assert done.returncode == 0, done.stderr[-3000:]
    assert f"the stream ended after step {steps} of 12" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "failure.json").exists()
    assert len(losses(tmp_path)) == steps
    newest = tmp_path / "checkpoints" / f"step-{steps:08d}"
    assert (newest / "run.json").exists()
    ended = record(tmp_path)
    assert (ended["steps"], ended["data_ended"], ended["stopped"]) == (steps, True, False)


def test_it_is_evaluated_at_its_end_and_found_ended_again(tmp_path: Path) -> None:
    training = TrainingOptions(eval_every_steps=3)
    params = {"size": 9, "by": "ranks", "once": True}
    found = [started(tmp_path, FSDP, params, training=training) for _ in range(2)]

    for done in found:
        assert done.returncode == 0, done.stderr[-3000:]
        assert "the stream ended after step 4 of 12" in done.stderr
    lines = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [3, 4]
    assert record(tmp_path)["steps"] == 4 and len(losses(tmp_path)) == 4


@pytest.mark.parametrize("by", ["", "ranks"])
def test_a_stream_that_can_be_read_again_is_and_it_is_said(tmp_path: Path, by: str) -> None:
    done = started(tmp_path, {"data": 2}, {"size": 9, "by": by})

    assert done.returncode == 0, done.stderr[-3000:]
    assert len(losses(tmp_path)) == 12 and not record(tmp_path)["data_ended"]
    assert done.stderr.count("the stream has ended, and is read again from its beginning") == 1


@pytest.mark.parametrize(("size", "once"), [(3, True), (0, False)])
def test_a_stream_without_one_step_is_refused(tmp_path: Path, size: int, once: bool) -> None:
    done = started(tmp_path, {"data": 2}, {"size": size, "once": once}, micro=2)

    assert done.returncode == 1
    assert "fewer samples than one step takes (4)" in done.stderr or "no sample" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_data_set_smaller_than_a_global_batch_is_refused(tmp_path: Path) -> None:
    plan = plan_of(FSDP, micro_batch=4)
    done = run(make_job(tmp_path, SAMPLES, plan=plan, params={"size": 7}, steps=3), 2)

    assert done.returncode == 1
    assert "returned 7 samples, and one step takes 8" in done.stderr
    assert "Traceback" not in done.stderr and not list(tmp_path.glob("checkpoints/step-*"))
