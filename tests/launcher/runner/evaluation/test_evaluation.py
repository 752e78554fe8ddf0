"""An evaluation is a mean over all samples once, under every layout, and the best is kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import REPOSITORY, losses, make_job, plan_of, run, train

from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.training_options import TrainingOptions

pytestmark = pytest.mark.slow

MODEL = REPOSITORY / "tests" / "support" / "models" / "token_model.py"
EVERY = TrainingOptions(eval_every_steps=2)
FSDP2 = {"data": 2, "shard": 2, "zero_stage": 3}


def evaluations(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]


def trained(folder: Path, layout: dict[str, Any], micro: int, accum: int, **fields: Any) -> Any:
    processes = math.prod(layout.get(one, 1) for one in ("data", "tensor", "pipeline"))
    plan = plan_of(layout, micro_batch=micro, grad_accum=accum)
    options = {"steps": 5, "workers": 0, "training": EVERY, **fields}
    train(folder, MODEL, processes, plan=plan, **options)
    return evaluations(folder)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what one process finds."""
    found = trained(tmp_path_factory.mktemp("alone"), {}, 8, 1)
    assert [line["step"] for line in found] == [2, 4, 5]
    return found


@pytest.mark.parametrize(
    "layout",
    [
        # 27 samples: of four batches of 4 on two ranks one is short, and one rank has none left.
        pytest.param({"data": 2}, id="dp2"),
        # Each kind of ranks is beside FSDP below.
        pytest.param(FSDP2, id="fsdp2", marks=pytest.mark.repeats),
        pytest.param({"tensor": 2}, id="tp2", marks=pytest.mark.repeats),
        pytest.param({**FSDP2, "tensor": 2}, id="fsdp2.tp2"),
        pytest.param({"pipeline": 2}, id="pp2", marks=pytest.mark.repeats),
        pytest.param({**FSDP2, "pipeline": 2}, id="pp2.fsdp2"),
        pytest.param({"pipeline": 2, "tensor": 2}, id="tp2.pp2", marks=pytest.mark.repeats),
    ],
)
def test_every_layout_finds_what_one_process_does(
    tmp_path: Path, alone: list[dict[str, Any]], layout: dict[str, Any]
) -> None:
    micro, accum = 8 // layout.get("data", 1), layout.get("pipeline", 1)
    found = trained(tmp_path, layout, micro // accum, accum)
    for key in ("loss", "accuracy"):
        expected = [line[key] for line in alone]
        assert [line[key] for line in found] == pytest.approx(expected, abs=1e-5), key


def test_interleaved_stages_evaluate_too(tmp_path: Path) -> None:
    given: dict[str, Any] = {"params": {"blocks": 4}}
    alone = trained(tmp_path / "alone", {}, 4, 2, **given)
    staged = trained(tmp_path / "staged", {"pipeline": 2, "virtual_stages": 2}, 4, 2, **given)
    for key in ("loss", "accuracy"):
        assert [line[key] for line in staged] == pytest.approx([line[key] for line in alone])


@pytest.mark.parametrize(
    "layout", [{"data": 2, "shard": 2, "zero_stage": 3}, {"pipeline": 2}], ids=["fsdp2", "pp2"]
)
def test_evaluating_changes_no_training(tmp_path: Path, layout: dict[str, Any]) -> None:
    accum = layout.get("pipeline", 1)
    trained(tmp_path / "often", layout, 4, accum, training=TrainingOptions(eval_every_steps=1))
    plan = plan_of(layout, micro_batch=4, grad_accum=accum)

    assert losses(tmp_path / "often") == train(
        tmp_path / "never", MODEL, 2, plan=plan, steps=5, workers=0
    )


def test_the_best_is_kept_and_patience_ends_the_run(tmp_path: Path) -> None:
    options = TrainingOptions(
        eval_every_steps=1, patience=2, schedule="constant", warmup_steps=1_000_000
    )
    # The rate of the first steps is next to nothing: the loss of the evaluation does not fall.
    params = {"held_out": 1}
    policy = CheckpointPolicy(every_steps=1, keep=1)
    job = make_job(
        tmp_path,
        MODEL,
        plan=plan_of(micro_batch=4),
        steps=50,
        params=params,
        workers=0,
        checkpoint=policy,
        training=options,
    )
    done = run(job)
    found = evaluations(tmp_path)

    assert done.returncode == 0, done.stderr[-2000:]
    best = found[-1]["best_step"]
    last = found[-1]["step"]
    assert last == best + 2 < 50 and "the run ends" in done.stderr
    kept = sorted(one.name for one in (tmp_path / "checkpoints").glob("step-*"))
    assert kept == [f"step-{best:08d}", f"step-{last:08d}"]

    record = json.loads((tmp_path / "record.json").read_text())
    again = run(job)
    assert again.returncode == 0 and "a larger --patience goes on" in again.stderr
    assert evaluations(tmp_path) == found and len(losses(tmp_path)) == last
    then = json.loads((tmp_path / "record.json").read_text())
    assert [then[one] for one in ("steps", "measured", "last_loss", "stopped")] == [
        record[one] for one in ("steps", "measured", "last_loss", "stopped")
    ]


def test_a_number_that_some_batches_have_is_the_mean_of_those(tmp_path: Path) -> None:
    given: dict[str, Any] = {"params": {"short": True}, "steps": 2}
    # 27 samples: of seven batches of 4 on two ranks, only the last has 3.
    alone = trained(tmp_path / "alone", {}, 4, 1, **given)
    spread = trained(tmp_path / "spread", {"data": 2}, 4, 1, **given)
    assert alone[0]["short"] == spread[0]["short"] == 3.0


def test_metrics_of_what_the_model_gave_are_refused_under_stages(tmp_path: Path) -> None:
    for name, layout, accum in (("alone", {}, 1), ("staged", {"pipeline": 2}, 2)):
        job = make_job(
            tmp_path / name,
            MODEL,
            plan=plan_of(layout, micro_batch=4, grad_accum=accum),
            steps=2,
            params={"again": True},
            workers=0,
            training=EVERY,
        )
        done = run(job, layout.get("pipeline", 1))
        assert done.returncode == (name == "staged"), done.stderr[-2000:]
    assert "calls the model, or a part of it, on what the model gave" in done.stderr


def test_what_cannot_be_evaluated_is_refused(tmp_path: Path) -> None:
    bare = MODEL.with_name("dataset_model.py")
    job = make_job(tmp_path / "bare", bare, plan=plan_of(), steps=2, workers=0, training=EVERY)
    done = run(job)
    assert done.returncode == 2 and "has no build_eval_dataset()" in done.stderr


def test_samples_that_are_split_at_random_are_split_alike_in_both_functions(tmp_path: Path) -> None:
    train(
        tmp_path,
        REPOSITORY / "tests" / "support" / "models" / "split_samples_model.py",
        1,
        plan=plan_of(micro_batch=8),
        steps=6,
        workers=0,
        training=TrainingOptions(eval_every_steps=6),
    )
    found = json.loads((tmp_path / "evaluations.jsonl").read_text().splitlines()[-1])
    assert (found["trained_on"], found["seen"]) == (48, 0)


@pytest.mark.parametrize(
    ("drawn", "warns"), [("built", True), ("read", False), ("split", False), ("own", False)]
)
def test_an_evaluation_of_what_is_trained_on_is_said(
    tmp_path: Path, drawn: str, warns: bool
) -> None:
    folder = make_job(
        tmp_path,
        REPOSITORY / "tests" / "support" / "models" / "toy_samples_model.py",
        plan=None,
        params={"drawn": drawn},
        steps=2,
        workers=0,
        training=TrainingOptions(eval_every_steps=2),
    )
    done = run(folder)
    assert done.returncode == 0, done.stderr
    words = "the first 8 samples of build_eval_dataset() are those of build_dataset()"
    assert (words in done.stderr) == warns


@pytest.mark.parametrize(
    "layout", [{"pipeline": 2}, {"data": 2, "shard": 2, "zero_stage": 3}], ids=["pp2", "fsdp2"]
)
def test_metrics_that_call_the_model_more_often_on_one_rank_are_said_at_once(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    job = make_job(
        tmp_path,
        MODEL,
        plan=plan_of(layout, micro_batch=2, grad_accum=2),
        steps=2,
        params={"uneven": True},
        workers=0,
        training=EVERY,
        # Much longer than the test may take: nobody waits until the others give up.
        timeout_s=3600,
    )
    done = run(job, 2)
    assert done.returncode == 1
    said = json.loads((tmp_path / "failure.json").read_text())
    assert said["class"] == "UserFileError"
    assert "calls the model more often on 1 of 2 ranks" in said["message"]
