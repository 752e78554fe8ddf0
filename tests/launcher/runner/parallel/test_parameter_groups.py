"""Groups with a rate, a decay and a schedule of their own train as in a loop of plain torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from runner_jobs import REPOSITORY, plan_of, train

from gpuplan.launcher.runner.job import CheckpointPolicy

pytestmark = [pytest.mark.slow, pytest.mark.spread]

MODEL = REPOSITORY / "tests" / "support" / "models" / "grouped_model.py"
TOLERANCE = 1e-5
STEPS, ACCUMULATED, MICRO_BATCH = 8, 2, 2
FSDP = {"data": 2, "shard": 2, "zero_stage": 3}
ZERO1 = {"data": 2, "shard": 2, "zero_stage": 1}


@pytest.fixture(scope="module")
def plain() -> list[float]:
    """Return the losses of a loop of plain torch on the same samples."""
    spec = importlib.util.spec_from_file_location("grouped_model", MODEL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    model, samples = module.build_model(), module.Samples()
    optimizer = module.build_optimizer(list(model.parameters()))
    scheduler = module.build_scheduler(optimizer, STEPS)
    losses, place = [], 0
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(ACCUMULATED):
            taken = [samples[one % len(samples)] for one in range(place, place + MICRO_BATCH)]
            place += MICRO_BATCH
            loss = module.compute_loss(model, torch.utils.data.default_collate(taken))
            (loss / ACCUMULATED).backward()
            total += float(loss.detach()) / ACCUMULATED
        optimizer.step()
        scheduler.step()
        losses.append(total)
    return losses


def _train(folder: Path, layout: dict[str, Any]) -> list[float]:
    data = layout.get("data", 1)
    return train(
        folder,
        MODEL,
        data * layout.get("tensor", 1) * layout.get("pipeline", 1),
        plan=plan_of(layout, micro_batch=MICRO_BATCH, grad_accum=ACCUMULATED // data),
        steps=STEPS,
        workers=0,
        checkpoint=CheckpointPolicy(every_steps=3),
    )


@pytest.mark.parametrize(
    "layout",
    [
        {},
        # Replicas are in what shares an optimizer's state, shards in the last.
        pytest.param({"data": 2}, marks=pytest.mark.repeats),
        pytest.param(FSDP, marks=pytest.mark.repeats),
        ZERO1,
        pytest.param({"tensor": 2}, marks=pytest.mark.repeats),
        {"pipeline": 2},
        {"tensor": 2, **FSDP},
    ],
    ids=lambda value: ".".join(f"{key}{item}" for key, item in value.items()) or "one",
)
def test_every_layout_trains_them_as_plain_torch(
    tmp_path: Path, plain: list[float], layout: dict[str, Any]
) -> None:
    assert _train(tmp_path, layout) == pytest.approx(plain, abs=TOLERANCE)


def test_they_go_on_under_other_layouts(tmp_path: Path, plain: list[float]) -> None:
    plan = plan_of(FSDP, micro_batch=MICRO_BATCH)
    keeps = {"workers": 0, "checkpoint": CheckpointPolicy(every_steps=3, keep=9)}
    train(tmp_path, MODEL, 2, plan=plan, steps=STEPS, **keeps)
    for later in ("step-00000008", "step-00000006"):
        _forget(tmp_path / "checkpoints" / later)
    found = _train(tmp_path, {"tensor": 2})
    assert found == pytest.approx(plain, abs=TOLERANCE)
    for later in ("step-00000008", "step-00000006"):
        _forget(tmp_path / "checkpoints" / later)
    assert _train(tmp_path, {}) == pytest.approx(plain, abs=TOLERANCE)


def _forget(checkpoint: Path) -> None:
    (checkpoint / "run.json").unlink()
