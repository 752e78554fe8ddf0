"""A learning-rate schedule is one over the whole run, whatever stops and continues it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import REPOSITORY, make_job, metrics, plan_of, run, train

from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.training.schedule import factor
from gpuplan.launcher.runner.training_options import TrainingOptions

MODELS = REPOSITORY / "tests" / "support" / "models"
OWN, PLAIN = MODELS / "scheduled_model.py", MODELS / "token_model.py"
ASKED = TrainingOptions(schedule="cosine", warmup_steps=4)
REPEATS = pytest.mark.repeats


def test_the_rate_rises_and_falls() -> None:
    how: dict[str, Any] = {"steps": 12, "warmup_steps": 4}
    cosine = [factor(step, shape="cosine", **how) for step in range(12)]
    assert cosine[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert cosine[8] == pytest.approx(0.5) and cosine[4:] == sorted(cosine[4:], reverse=True)
    assert [factor(step, shape="constant", **how) for step in (3, 11)] == [1.0, 1.0]
    assert factor(12, shape="linear", **how) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options", "then"),
    [
        pytest.param(OWN, TrainingOptions(), {"pipeline": 2}, id="own-pp2"),
        pytest.param(OWN, TrainingOptions(), {"tensor": 2}, id="own-tp2", marks=REPEATS),
        pytest.param(OWN, TrainingOptions(), {}, id="own-one", marks=REPEATS),
        pytest.param(PLAIN, ASKED, {"pipeline": 2}, id="asked-pp2", marks=REPEATS),
        pytest.param(PLAIN, ASKED, {"tensor": 2}, id="asked-tp2"),
        pytest.param(PLAIN, ASKED, {}, id="asked-one", marks=REPEATS),
    ],
)
def test_a_schedule_continues_on_another_world_size(
    tmp_path: Path, model: Path, options: TrainingOptions, then: dict[str, Any]
) -> None:
    def part(name: str, layout: dict[str, Any], accum: int, steps: int) -> list[float]:
        return train(
            tmp_path / name,
            model,
            math.prod(layout.get(one, 1) for one in ("data", "pipeline", "tensor")),
            plan=plan_of(layout, micro_batch=4, grad_accum=accum),
            steps=steps,
            workers=0,
            checkpoint=CheckpointPolicy(every_steps=3),
            training=options,
        )

    straight = part("straight", {}, 2, 10)
    # A run is told its last step from the start; here its processes are ended before.
    killed = tmp_path / "parts"
    part("parts", {"data": 2, "shard": 2, "zero_stage": 3}, 1, 10)
    for late in ("step-00000009", "step-00000010"):
        (killed / "checkpoints" / late).rename(tmp_path / late)
    (tmp_path / "step-00000009").rename(killed / "checkpoints" / "step-00000009")
    continued = part("parts", then, 2, 10)

    assert continued == pytest.approx(straight, abs=1e-6)
    rates = [line["learning_rate"] for line in metrics(tmp_path / "straight")]
    last = {line["step"]: line["learning_rate"] for line in metrics(killed)}
    assert [last[step] for step in range(1, 11)] == pytest.approx(rates, abs=1e-12)
    assert len(set(rates)) >= 7


@pytest.mark.slow
def test_two_schedules_are_refused(tmp_path: Path) -> None:
    job = make_job(tmp_path, OWN, plan=plan_of(), steps=2, workers=0, training=ASKED)
    done = run(job)
    assert done.returncode == 2 and "--schedule or --warmup asks for another" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("model", [OWN, REPOSITORY / "examples" / "lines.py"])
def test_a_run_with_more_steps_has_the_schedule_of_as_many_from_there(
    tmp_path: Path, model: Path
) -> None:
    """PolynomialLR kept a rate of 0 for all further steps, OneCycleLR ended the run."""

    def rates(name: str, *steps: int) -> list[float]:
        for count in steps:
            train(tmp_path / name, model, 1, plan=plan_of(), steps=count, workers=0)
        return [line["learning_rate"] for line in metrics(tmp_path / name)]

    straight = rates("straight", 10)
    continued = rates("longer", 4, 10)

    assert continued[:4] != straight[:4]
    assert continued[4:] == pytest.approx(straight[4:], rel=1e-9)
    assert min(straight[4:]) > 0
