"""A step of fp16 whose gradients overflow changes no weight, and no learning rate either."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from runner_jobs import REPOSITORY, metrics, plan_of, train

from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.training.schedule import Schedule
from gpuplan.profiles.user_model.schedulers import Stepped
from gpuplan.profiles.user_model.training_step import LOSS_SCALE

MODELS = REPOSITORY / "tests" / "support" / "models"
MODEL = MODELS / "overflowing_model.py"
STEPS = 8
HALVES = 0.02
"""Tolerance of losses near 2.6: halves of a batch round otherwise than the whole, in 16 bits."""
LAYOUTS: list[dict[str, Any]] = [
    {},
    {"data": 2},
    {"data": 2, "shard": 2, "zero_stage": 1},
]


def plain(monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[float]]:
    """Return (losses, rates) of a loop of plain torch that steps its schedule where weights did."""
    monkeypatch.syspath_prepend(str(MODELS))
    import overflowing_model as module

    torch.manual_seed(0)
    model, samples = module.build_model(), module.build_dataset()
    optimizer = module.build_optimizer(model.parameters())
    schedule = module.build_scheduler(optimizer, STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=LOSS_SCALE)
    losses, rates = [], []
    for step in range(STEPS):
        taken = [samples[one] for one in range(4 * step, 4 * step + 4)]
        with torch.autocast("cpu", torch.float16):
            loss = module.compute_loss(model, torch.utils.data.default_collate(taken))
        rates.append(optimizer.param_groups[0]["lr"])
        scaler.scale(loss).backward()
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if scaler.get_scale() >= scale:
            schedule.step()
        losses.append(loss.item())
    sys.modules.pop("overflowing_model")
    return losses, rates


def _train(folder: Path, layout: dict[str, Any], **fields: Any) -> tuple[list[float], list[float]]:
    data = layout.get("data", 1)
    plan = plan_of(layout, micro_batch=4 // data, precision="fp16-amp")
    policy = CheckpointPolicy(every_steps=1, keep=9)
    losses = train(
        folder, MODEL, data, plan=plan, steps=STEPS, workers=0, checkpoint=policy, **fields
    )
    rates = {line["step"]: line["learning_rate"] for line in metrics(folder)}
    return losses, [rates[step] for step in sorted(rates)]


@pytest.mark.slow
def test_a_skipped_step_keeps_the_rate_on_every_world_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, rates = plain(monkeypatch)
    assert rates[2] == rates[3] and rates[1] != rates[2], "the loop skipped no step"
    for number, layout in enumerate(LAYOUTS):
        found = _train(tmp_path / str(number), layout)
        assert found[0] == pytest.approx(losses, abs=HALVES if layout else 1e-6)
        assert found[1] == pytest.approx(rates, rel=1e-12)


@pytest.mark.slow
def test_it_is_kept_when_the_run_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, rates = plain(monkeypatch)
    _train(tmp_path, LAYOUTS[2])
    for late in range(4, STEPS + 1):
        shutil.rmtree(tmp_path / "checkpoints" / f"step-{late:08d}")
    found = _train(tmp_path, {})
    assert found[0] == pytest.approx(losses, abs=HALVES)
    assert found[1] == pytest.approx(rates, rel=1e-12)


def test_a_schedule_of_every_second_step_counts_those_that_changed_weights() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)

    def opened() -> tuple[torch.optim.lr_scheduler.LRScheduler, Schedule]:
        inner = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        parts = (Stepped(inner, interval="step", frequency=2),)
        optimizer.step()  # A schedule that has stepped before its optimizer warns.
        return inner, Schedule(parts, 1, steps=9, optimizer=optimizer)

    inner, schedule = opened()
    schedule.after_step(1)
    schedule.after_step(2, skipped=True)
    assert inner.last_epoch == 0
    kept = schedule.state()
    inner, schedule = opened()
    schedule.restore(kept)
    schedule.after_step(3)
    assert inner.last_epoch == 1
    schedule.after_step(4)
    assert inner.last_epoch == 1
