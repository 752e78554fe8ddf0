"""Samples of a model that trains change nothing of its training, under any layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import REPOSITORY, losses, make_job, plan_of, run, train

from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.training_options import TrainingOptions

pytestmark = pytest.mark.slow

LINES = REPOSITORY / "examples" / "lines.py"
EVERY = TrainingOptions(sample_every_steps=2)
FSDP = {"data": 2, "shard": 2, "zero_stage": 3}


@pytest.fixture(autouse=True)
def without_schedule(tmp_path: Path) -> None:
    """Write a model file whose steps do not depend on how many there will be."""
    text = LINES.read_text()
    assert "def build_scheduler" in text
    (tmp_path / "lines.py").write_text(text.replace("def build_scheduler", "def no_scheduler"))


def trained(folder: Path, steps: int, training: TrainingOptions = EVERY) -> list[float]:
    return train(
        folder,
        folder.with_name("lines.py"),
        2,
        plan=plan_of(FSDP, micro_batch=4),
        steps=steps,
        workers=0,
        training=training,
        checkpoint=CheckpointPolicy(every_steps=2),
    )


def written(folder: Path) -> dict[str, str]:
    return {one.parent.name: one.read_text() for one in folder.glob("samples/step-*/line.txt")}


def test_sampling_changes_no_training_and_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", 5)
    never = trained(tmp_path / "never", 5, TrainingOptions())
    trained(tmp_path / "parts", 3)
    (tmp_path / "parts" / "samples" / "step-00000003" / "line.txt").unlink()
    continued = trained(tmp_path / "parts", 5)

    assert whole == never
    assert continued == pytest.approx(whole, abs=1e-6)
    lines = written(tmp_path / "whole")
    assert sorted(lines) == ["step-00000002", "step-00000004", "step-00000005"]
    assert all(text.startswith("def ") for text in lines.values())
    assert written(tmp_path / "parts") == lines
    assert losses(tmp_path / "whole") == whole


@pytest.mark.parametrize(
    ("model", "layout", "words"),
    [
        (REPOSITORY / "tests" / "support" / "models" / "token_model.py", {}, "has no sample()"),
        (LINES, {"pipeline": 2}, "not run under pipeline stages"),
    ],
)
def test_what_cannot_be_sampled_is_refused(
    tmp_path: Path, model: Path, layout: dict[str, Any], words: str
) -> None:
    plan = plan_of(layout, micro_batch=4, grad_accum=2)
    job = make_job(tmp_path, model, plan=plan, steps=2, workers=0, training=EVERY)
    assert run(job, layout.get("pipeline", 1)).returncode == 2
    assert words in json.loads((tmp_path / "failure.json").read_text())["message"]
