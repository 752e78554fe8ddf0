"""A stage that has no parameter for one of several optimizers trains as one process does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import REPOSITORY, metrics, plan_of, train

from gpuplan.launcher.runner.job import CheckpointPolicy

pytestmark = [pytest.mark.slow, pytest.mark.spread]

MODEL = REPOSITORY / "tests" / "support" / "models" / "parts_of_stages_model.py"
STAGES = {"pipeline": 3}
SHARDED = {"pipeline": 2, "data": 2, "shard": 2, "zero_stage": 3}
TOLERANCE = 1e-5


def losses_of(
    folder: Path, layout: dict[str, Any], of_matrices: str, *, frozen: str = "", **fields: Any
) -> list[float]:
    precision = fields.pop("precision", "fp32")
    plan = plan_of(layout, micro_batch=2, grad_accum=3, precision=precision)
    return train(
        folder,
        MODEL,
        layout.get("pipeline", 1) * layout.get("data", 1),
        params={"of_matrices": of_matrices, "frozen": frozen},
        workers=0,
        checkpoint=CheckpointPolicy(every_steps=3, keep=9),
        **{"steps": 8, "plan": plan, **fields},
    )


@pytest.mark.parametrize(
    # Whatever has no parameter in a stage is left out there: Muon and AdamW below, each alone.
    "of_matrices",
    ["muon", *(pytest.param(one, marks=pytest.mark.repeats) for one in ("sgd", "adamw"))],
)
def test_a_stage_without_a_matrix_trains_as_one_process(tmp_path: Path, of_matrices: str) -> None:
    alone = losses_of(tmp_path / "alone", {}, of_matrices)
    staged = losses_of(tmp_path / "staged", STAGES, of_matrices)

    assert staged == pytest.approx(alone, abs=TOLERANCE)
    assert alone[0] - alone[-1] > 100 * TOLERANCE


@pytest.mark.parametrize("of_matrices", ["muon", "groups"])
def test_it_goes_on_alone_and_back(tmp_path: Path, of_matrices: str) -> None:
    alone = losses_of(tmp_path / "alone", {}, of_matrices)
    rates = [line["learning_rate"] for line in metrics(tmp_path / "alone")]
    parts = tmp_path / "parts"
    for layout in (STAGES, {}, STAGES):
        assert losses_of(parts, layout, of_matrices) == pytest.approx(alone, abs=TOLERANCE)
        for later in ("step-00000008", "step-00000006"):
            shutil.rmtree(parts / "checkpoints" / later)
    found = {line["step"]: line["learning_rate"] for line in metrics(parts)}
    assert [found[step] for step in sorted(found)] == pytest.approx(rates, rel=1e-6)


def test_a_scaled_loss_and_a_clipped_norm_take_it_too(tmp_path: Path) -> None:
    how: dict[str, Any] = {"precision": "fp16-amp", "clip_grad_norm": 0.5}
    alone = losses_of(tmp_path / "alone", {}, "adamw", **how)
    staged = losses_of(tmp_path / "staged", STAGES, "adamw", **how)

    assert staged == pytest.approx(alone, abs=1e-3)


@pytest.mark.parametrize(
    ("frozen", "precision"),
    [
        ("first", "fp32"),
        pytest.param("first", "fp16-amp", marks=pytest.mark.repeats),
        pytest.param("last", "fp32", marks=pytest.mark.repeats),
        ("last", "fp16-amp"),
    ],
)
def test_a_stage_that_is_frozen_as_a_whole_takes_part(
    tmp_path: Path, frozen: str, precision: str
) -> None:
    how: dict[str, Any] = {"frozen": frozen, "precision": precision, "clip_grad_norm": 0.5}
    alone = losses_of(tmp_path / "alone", {}, "one", **how)
    parts = tmp_path / "parts"
    for layout in ({"pipeline": 2}, {}, {"pipeline": 2}):
        assert losses_of(parts, layout, "one", **how) == pytest.approx(alone, abs=TOLERANCE)
        for later in ("step-00000008", "step-00000006"):
            shutil.rmtree(parts / "checkpoints" / later)
    assert alone[0] - alone[-1] > 100 * TOLERANCE


@pytest.mark.parametrize("frozen", ["first", pytest.param("last", marks=pytest.mark.repeats)])
def test_it_does_so_sharded_too(tmp_path: Path, frozen: str) -> None:
    alone = losses_of(tmp_path / "alone", {}, "one", frozen=frozen)
    plan = plan_of(SHARDED, micro_batch=1, grad_accum=3)
    sharded = losses_of(tmp_path / "sharded", SHARDED, "one", frozen=frozen, plan=plan)
    assert sharded == pytest.approx(alone, abs=TOLERANCE)
