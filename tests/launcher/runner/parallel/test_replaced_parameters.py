"""What a file leaves on its parameters holds under every layout, or is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from runner_jobs import REPOSITORY, make_job, plan_of, run, train

from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.training_options import TrainingOptions

pytestmark = [pytest.mark.slow, pytest.mark.spread]

MODEL = REPOSITORY / "tests" / "support" / "models" / "marked_model.py"
TOLERANCE = 1e-5
DDP: dict[str, Any] = {"data": 2}
FSDP = {"data": 2, "shard": 2, "zero_stage": 3}
TENSOR = {"tensor": 2}


def _train(folder: Path, what: str, layout: dict[str, Any]) -> list[float]:
    data = layout.get("data", 1)
    plan = plan_of(layout, micro_batch=4, grad_accum=2 // data)
    ranks = data * layout.get("tensor", 1)
    return train(folder, MODEL, ranks, plan=plan, params={"what": what}, workers=0)


def test_marks_are_read_under_every_layout(tmp_path: Path) -> None:
    alone = _train(tmp_path / "one", "marks", {})
    assert alone != pytest.approx(_train(tmp_path / "plain", "nothing", {}), abs=1e-3)
    for number, layout in enumerate((FSDP, TENSOR)):
        found = _train(tmp_path / str(number), "marks", layout)
        assert found == pytest.approx(alone, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("hook", "a hook on its parameter scale, which this layout replaces"),
        ("list", "scales of the model keeps the parameter scale beside its place"),
    ],
)
def test_what_would_stay_on_the_old_ones_is_refused(tmp_path: Path, what: str, said: str) -> None:
    job = make_job(tmp_path, MODEL, plan=plan_of(FSDP), params={"what": what}, workers=0)
    done = run(job, 2)
    assert done.returncode == 1 and said in done.stderr


def test_gradients_that_building_left_are_not_added(tmp_path: Path) -> None:
    clean = _train(tmp_path / "clean", "nothing", {})
    assert _train(tmp_path / "left", "gradients", {}) == pytest.approx(clean, abs=1e-6)


@pytest.mark.parametrize("layout", [DDP, FSDP], ids=["ddp", "fsdp"])
def test_an_evaluation_is_that_of_the_model_in_the_checkpoint(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    train(
        tmp_path,
        MODEL,
        2,
        plan=plan_of(layout, micro_batch=4),
        workers=0,
        checkpoint=CheckpointPolicy(every_steps=6),
        training=TrainingOptions(eval_every_steps=6),
    )
    found = json.loads((tmp_path / "evaluations.jsonl").read_text().splitlines()[-1])
    assert found["loss"] == pytest.approx(
        _loss_of(tmp_path / "checkpoints/step-00000006"), abs=1e-6
    )


def _loss_of(checkpoint: Path) -> float:
    """Return the loss of a checkpoint's model over all samples, in plain torch."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("marked_model", MODEL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.build_model()
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=checkpoint, no_dist=True)  # pyright: ignore[reportPrivateImportUsage]
    model.load_state_dict(state["model"])
    inputs, labels = torch.utils.data.default_collate(
        list(map(module.Samples().__getitem__, range(21)))
    )
    with torch.no_grad():
        return float(module.compute_loss(model.eval(), (inputs, labels)))
