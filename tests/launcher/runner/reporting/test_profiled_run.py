"""A run with profiled steps trains as one without, and its times are those without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runner_jobs import REPOSITORY, make_job, metrics, plan_of, run, train

from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.training_options import TrainingOptions

pytestmark = pytest.mark.slow

NOISY = REPOSITORY / "tests" / "support" / "models" / "dataset_model.py"
EVERY = CheckpointPolicy(every_steps=3)


def test_a_profiled_run_of_two_processes_that_goes_on_is_the_run_without(tmp_path: Path) -> None:
    def noisy(folder: Path, steps: int, asked: tuple[int, int] | None) -> list[float]:
        return train(
            folder,
            NOISY,
            2,
            plan=plan_of({"data": 2}, micro_batch=4),
            steps=steps,
            checkpoint=EVERY,
            workers=0,
            training=TrainingOptions(profile_steps=asked),
        )

    whole = noisy(tmp_path / "whole", 10, None)
    folder = tmp_path / "parts"
    noisy(folder, 6, (5, 8))
    seen = json.loads((folder / "profile" / "kernels.json").read_text())
    continued = noisy(folder, 10, (5, 8))
    again = json.loads((folder / "profile" / "kernels.json").read_text())

    assert continued == pytest.approx(whole, abs=1e-6)
    assert (seen["first_step"], seen["last_step"]) == (5, 6)
    assert (again["first_step"], again["last_step"]) == (7, 8)
    assert [line["step"] for line in metrics(folder) if "profile" in line["parts_s"]] == [8]


def test_no_time_of_a_profiled_step_counts(tmp_path: Path) -> None:
    job = make_job(
        tmp_path,
        NOISY,
        plan=plan_of(micro_batch=4),
        steps=6,
        workers=0,
        training=TrainingOptions(profile_steps=(4, 6)),
    )
    assert run(job).returncode == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["measured"]["step_time_s"] is None, "all but the first three are profiled"
    assert len(metrics(tmp_path)) == 6
