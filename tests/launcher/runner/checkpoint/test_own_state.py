"""State of the user's own is in checkpoints, and read back under another layout."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from runner_jobs import REPOSITORY, plan_of, train

from gpuplan.launcher.runner.checkpoint.contents import read_small
from gpuplan.launcher.runner.checkpoint.own_state import put_together, taken_apart
from gpuplan.launcher.runner.job import CheckpointPolicy

MODEL = REPOSITORY / "tests" / "support" / "models" / "averaged_model.py"


def test_a_state_is_put_together_as_it_was_taken_apart() -> None:
    state = {"seen": 3, "mean": {"layers": {"0": torch.ones(1)}, "rate": 0.2}, "empty": {}}
    tensors, plain = taken_apart(state)
    assert list(tensors) == ["mean/layers/0"]
    assert plain == {"seen": 3, "mean": {"layers": {}, "rate": 0.2}, "empty": {}}
    assert put_together(tensors, plain) == state


def average(folder: Path, step: int) -> dict[str, torch.Tensor]:
    """Return the average in a checkpoint, by name."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(folder / "checkpoints" / f"step-{step:08d}", folder / "whole.pt")
    whole = torch.load(folder / "whole.pt", weights_only=False)
    return {name.removeprefix("mean/"): value for name, value in whole["own"].items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_average_continues_under_other_layouts(tmp_path: Path) -> None:
    def part(name: str, layout: dict[str, Any], accum: int, steps: int) -> None:
        processes = math.prod(layout.get(one, 1) for one in ("data", "pipeline", "tensor"))
        plan = plan_of(layout, micro_batch=4, grad_accum=accum)
        policy = CheckpointPolicy(every_steps=4, keep=9)
        folder = tmp_path / name
        train(folder, MODEL, processes, plan=plan, steps=steps, workers=0, checkpoint=policy)

    part("straight", {}, 2, 10)
    part("parts", {"data": 2, "shard": 2, "zero_stage": 3}, 1, 3)
    part("parts", {"pipeline": 2}, 2, 6)
    part("parts", {}, 2, 8)
    part("parts", {"tensor": 2}, 2, 10)
    straight, continued = (average(tmp_path / name, 10) for name in ("straight", "parts"))

    assert straight.keys() == continued.keys() and len(straight) > 4
    for name, value in straight.items():
        torch.testing.assert_close(continued[name], value, rtol=0, atol=1e-6)
    newest = tmp_path / "parts" / "checkpoints" / "step-00000010"
    assert read_small(newest)["own"] == {"steps": 10, "mean": {}}
