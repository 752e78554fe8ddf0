"""Several optimizers of one loss, each with a schedule, train as in a loop of plain torch."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from runner_jobs import REPOSITORY, metrics, plan_of, train

from gpuplan.launcher.runner.job import CheckpointPolicy

pytestmark = [pytest.mark.slow, pytest.mark.spread]

MODELS = REPOSITORY / "tests" / "support" / "models"
MODEL = MODELS / "several_optimizers_model.py"
TOLERANCE = 1e-5
MUON_TOLERANCE = 5e-3
"""torch's Muon multiplies in bfloat16: products of shards are added in another order."""
STEPS, MICRO_BATCH = 8, 4
FSDP = {"data": 2, "shard": 2, "zero_stage": 3}
ZERO1 = {"data": 2, "shard": 2, "zero_stage": 1}
LAYOUTS = [
    # Replicas are in what shares an optimizer's state, shards in the last.
    {},
    pytest.param({"data": 2}, marks=pytest.mark.repeats),
    pytest.param(FSDP, marks=pytest.mark.repeats),
    ZERO1,
    # These two are in what goes on under other layouts.
    pytest.param({"tensor": 2}, marks=pytest.mark.repeats),
    pytest.param({"pipeline": 2}, marks=pytest.mark.repeats),
    {"tensor": 2, **FSDP},
]


def plain_losses(matrices: str, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the losses of a loop of plain torch on the same samples."""
    monkeypatch.syspath_prepend(str(MODELS))
    for name in ("several_optimizers_model", "grouped_model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import several_optimizers_model as module

    torch.manual_seed(0)
    model, samples = module.build_model(), module.build_dataset()
    optimizers = module.build_optimizer(list(model.parameters()), matrices)
    schedules = module.build_scheduler(optimizers, STEPS)
    losses = []
    for step in range(STEPS):
        taken = [samples[one] for one in range(step * MICRO_BATCH, (step + 1) * MICRO_BATCH)]
        loss = module.compute_loss(model, torch.utils.data.default_collate(taken))
        loss.backward()
        for one in optimizers:
            one.step()
            one.zero_grad()
        for one in schedules:
            one.step()
        losses.append(loss.item())
    return losses


def _train(folder: Path, layout: dict[str, Any], **fields: Any) -> list[float]:
    data, passes = layout.get("data", 1), 2 if "pipeline" in layout else 1
    return train(
        folder,
        MODEL,
        data * layout.get("tensor", 1) * layout.get("pipeline", 1),
        plan=plan_of(layout, micro_batch=MICRO_BATCH // data // passes, grad_accum=passes),
        workers=0,
        checkpoint=CheckpointPolicy(every_steps=3, keep=9),
        **{"steps": STEPS, **fields},
    )


def _named(layout: dict[str, Any]) -> str:
    return ".".join(f"{key}{item}" for key, item in layout.items()) or "one"


@pytest.mark.parametrize("layout", LAYOUTS, ids=_named)
def test_every_layout_trains_them_as_plain_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: dict[str, Any]
) -> None:
    found = _train(tmp_path, layout)
    assert found == pytest.approx(plain_losses("sgd", monkeypatch), abs=TOLERANCE)


@pytest.mark.parametrize(
    "layout",
    [{}, pytest.param({"data": 2}, marks=pytest.mark.repeats), FSDP, {"tensor": 2}],
    ids=_named,
)
def test_muon_of_matrices_beside_adamw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: dict[str, Any]
) -> None:
    found = _train(tmp_path, layout, params={"matrices": "muon"})
    plain = plain_losses("muon", monkeypatch)
    assert found == pytest.approx(plain, abs=MUON_TOLERANCE if layout else TOLERANCE)
    assert plain[0] - plain[-1] > 10 * MUON_TOLERANCE


def test_they_go_on_under_other_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = plain_losses("sgd", monkeypatch)
    _train(tmp_path, FSDP)
    for layout in ({"tensor": 2}, {"pipeline": 2}, {}):
        for later in ("step-00000008", "step-00000006"):
            shutil.rmtree(tmp_path / "checkpoints" / later)
        assert _train(tmp_path, layout) == pytest.approx(plain, abs=TOLERANCE)


def test_the_record_names_both(tmp_path: Path) -> None:
    _train(tmp_path, {}, steps=2)
    record = (tmp_path / "record.json").read_text()
    assert '"optimizer": "sgd+adamw"' in record
    assert metrics(tmp_path)[0]["learning_rate"] == 0.1


def test_the_example_trains_sharded_what_it_trains_alone(tmp_path: Path) -> None:
    def found(folder: Path, layout: dict[str, Any]) -> list[float]:
        plan = plan_of(layout, micro_batch=8 // layout.get("data", 1))
        lines = REPOSITORY / "examples" / "lines.py"
        given = {"params": {"matrices": "muon"}, "plan": plan, "steps": 4, "workers": 0}
        return train(folder, lines, layout.get("data", 1), **given)

    alone = found(tmp_path / "alone", {})
    assert found(tmp_path / "sharded", FSDP) == pytest.approx(alone, abs=10 * MUON_TOLERANCE)
