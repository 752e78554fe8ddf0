"""A mean over tokens is the same however a step is dealt to ranks and micro-batches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from runner_jobs import REPOSITORY, plan_of, train

from gpuplan.catalog.errors import UserFileError
from gpuplan.launcher.runner.training.loss_weights import LossWeights
from gpuplan.planner.plan.layout import Layout

MODEL = REPOSITORY / "tests" / "support" / "models" / "token_model.py"
TOLERANCE = 1e-5
CPU = torch.device("cpu")


def losses(folder: Path, layout: dict[str, Any], accum: int, micro: int, **params: Any) -> Any:
    processes = layout.get("data", 1) * layout.get("pipeline", 1)
    plan = plan_of(layout, micro_batch=micro, grad_accum=accum)
    return train(folder, MODEL, processes, plan=plan, steps=5, params=params, workers=0)


@pytest.mark.slow
def test_every_token_counts_the_same_under_every_layout(tmp_path: Path) -> None:
    alone = losses(tmp_path / "alone", {}, 1, 8)
    others = {
        "accumulated": ({}, 4, 2),
        "dp2": ({"data": 2}, 1, 4),
        "fsdp2": ({"data": 2, "shard": 2, "zero_stage": 3}, 2, 2),
        "pp2": ({"pipeline": 2}, 4, 2),
    }
    for name, (layout, accum, micro) in others.items():
        found = losses(tmp_path / name, layout, accum, micro)
        assert found == pytest.approx(alone, abs=TOLERANCE), name
    unweighted = losses(tmp_path / "unweighted", {}, 4, 2, weighted=False)
    assert unweighted != pytest.approx(alone, abs=1e-3), "the weights made no difference"


def test_parts_of_a_rank_are_those_of_its_tokens() -> None:
    weights = LossWeights(lambda batch: tuple(batch)[0], Layout(), CPU)
    assert [float(one) for one in weights.parts([(1,), (3,)])] == [0.25, 0.75]
    assert [float(one) for one in weights.parts([(0,), (0,)])] == [0.0, 0.0]


def test_a_weight_that_is_no_number_is_named() -> None:
    weights: Any = LossWeights(lambda batch: SimpleNamespace(), Layout(), CPU)
    with pytest.raises(UserFileError, match="loss_weight"):
        weights.parts([()])
