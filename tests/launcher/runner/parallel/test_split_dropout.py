"""Tensor ranks drop other features of their parts, and the same of what each holds whole."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from runner_jobs import REPOSITORY, make_job, plan_of, run, run_with_torchrun, train

from gpuplan.launcher.runner.job import CheckpointPolicy

pytestmark = [pytest.mark.slow, pytest.mark.spread]

MODEL = REPOSITORY / "tests" / "support" / "models" / "dropping_model.py"
DROPPED = 0.25
STEPS = 6
TP2: dict[str, Any] = {"tensor": 2}
EXACT = 1e-6
# Where the dropout before the function has dropped already, both are 0.
DROPPED_TWICE = 1 - (1 - DROPPED) ** 2
INDEPENDENT = DROPPED_TWICE**2 + (1 - DROPPED_TWICE) ** 2
either_recompute = pytest.mark.parametrize(
    # The other case looks at the same masks, and at those that are drawn again.
    "recompute",
    [pytest.param("none", marks=pytest.mark.repeats), "full"],
)


def _train(
    folder: Path,
    layout: dict[str, Any],
    *,
    steps: int = STEPS,
    found_as: str = "usual",
    **plan: Any,
) -> list[float]:
    processes = math.prod(layout.get(name, 1) for name in ("tensor", "data", "pipeline"))
    return train(
        folder,
        MODEL,
        processes,
        # torch's compiler does not quote the folder of the interpreter, and forked ranks have ours.
        run=run_with_torchrun if plan.get("compile") else run,
        plan=plan_of(layout, micro_batch=4, **{"grad_accum": 2, **plan}),
        steps=steps,
        params={"found_as": found_as},
        checkpoint=CheckpointPolicy(every_steps=2),
    )


def masks(folder: Path, name: str, rank: int) -> torch.Tensor:
    return torch.stack(torch.load(folder / f"{name}-{rank}.pt")).double()


def _by_functions_agree(folder: Path, block: int) -> float:
    """Return the share of places that both ranks drop, or both keep."""
    mine, others = (masks(folder, f"function{block}", rank) for rank in range(2))
    return (mine == others).double().mean().item()


@either_recompute
def test_parts_have_other_masks_and_whole_features_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recompute: str
) -> None:
    monkeypatch.setenv("MASKS", str(tmp_path))
    _train(tmp_path, TP2, recompute=recompute)

    for block in range(2):
        mine, others = (masks(tmp_path, f"split{block}", rank) for rank in range(2))
        assert mine.shape == others.shape == (mine.shape[0], 4, 16, 32)
        for one in (mine, others):
            # 24,576 features and more: five standard deviations are 0.014.
            assert one.mean().item() == pytest.approx(DROPPED, abs=0.014)
        # Independent masks agree in p² + (1 - p)² of the places.
        agreeing = (mine == others).double().mean().item()
        assert agreeing == pytest.approx(DROPPED**2 + (1 - DROPPED) ** 2, abs=0.016)
        assert torch.equal(*(masks(tmp_path, f"whole{block}", rank) for rank in range(2)))
        assert not torch.equal(mine[0], mine[-1]), "every micro-batch has the same mask"
        if recompute == "full":
            assert len(mine) == 2 * 2 * STEPS, "a block is computed twice for each micro-batch"
            assert len(mine.flatten(1).unique(dim=0)) == len(mine) // 2


@either_recompute
def test_parts_have_other_masks_under_pipeline_stages_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recompute: str
) -> None:
    monkeypatch.setenv("MASKS", str(tmp_path))
    layout = {"tensor": 2, "pipeline": 2}
    train(
        tmp_path,
        MODEL,
        4,
        plan=plan_of(layout, micro_batch=4, grad_accum=2, recompute=recompute),
        steps=STEPS,
    )
    for block, ranks in ((0, (0, 1)), (1, (2, 3))):
        mine, others = (masks(tmp_path, f"split{block}", rank) for rank in ranks)
        # The first of all is of no step: torch learns the shapes that travel.
        agreeing = (mine[2:] == others[2:]).double().mean().item()
        assert agreeing == pytest.approx(DROPPED**2 + (1 - DROPPED) ** 2, abs=0.016)
        assert mine[2:].mean().item() == pytest.approx(DROPPED, abs=0.014)
        assert torch.equal(*(masks(tmp_path, f"whole{block}", rank) for rank in ranks))
        drawn = 2 * STEPS
        if recompute == "full":
            assert len(mine[2:].flatten(1).unique(dim=0)) == drawn, "computed anew as before"


@either_recompute
def test_parts_have_other_masks_in_compiled_blocks_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recompute: str
) -> None:
    monkeypatch.setenv("MASKS", str(tmp_path))
    _train(tmp_path, TP2, compile=True, recompute=recompute)
    for block in range(2):
        for kind in ("split", "attention"):
            mine, others = (masks(tmp_path, f"{kind}{block}", rank) for rank in range(2))
            agreeing = (mine == others).double().mean().item()
            assert agreeing == pytest.approx(DROPPED**2 + (1 - DROPPED) ** 2, abs=0.016)
        assert _by_functions_agree(tmp_path, block) == pytest.approx(INDEPENDENT, abs=0.02)
        mine, others = (masks(tmp_path, f"split{block}", rank) for rank in range(2))
        assert torch.equal(*(masks(tmp_path, f"whole{block}", rank) for rank in range(2)))
        if recompute == "full":
            assert len(mine) == 2 * 2 * STEPS, "a block is computed twice for each micro-batch"
            assert len(mine.flatten(1).unique(dim=0)) == len(mine) // 2


@pytest.mark.parametrize(
    "found_as",
    # The case above has a module's dropout in compiled blocks, the one below a function's name.
    [
        pytest.param(one, marks=pytest.mark.repeats)
        for one in ("named", "kept", "part", "of class", "torch")
    ],
)
def test_functions_are_found_in_compiled_blocks_wherever_the_file_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found_as: str
) -> None:
    monkeypatch.setenv("MASKS", str(tmp_path))
    _train(tmp_path, TP2, compile=True, found_as=found_as)
    for block in range(2):
        assert _by_functions_agree(tmp_path, block) == pytest.approx(INDEPENDENT, abs=0.02)


def test_a_function_that_is_found_nowhere_is_named_where_blocks_are_compiled(
    tmp_path: Path,
) -> None:
    model = tmp_path / "in_closure.py"
    model.write_text(IN_CLOSURE, encoding="utf-8")
    job = make_job(tmp_path, model, plan=plan_of(TP2, micro_batch=4, compile=True), steps=1)
    said = run_with_torchrun(job, 2).stderr.splitlines()
    (warning,) = [one for one in said if "the dropout at" in one]
    assert "in_closure.py:" in warning
    assert "(return lambda x: drop(x, 0.25, True))" in warning
    assert "drops the same places of the features of every tensor rank" in warning


IN_CLOSURE = """
import torch.nn.functional as F
from torch import nn, randn


def closure(drop):
    return lambda x: drop(x, 0.25, True)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(8, 16), nn.Linear(16, 8), closure(F.dropout)

    def forward(self, x):
        return x + self.down(self.drop(self.up(x)))


def build_model():
    return nn.Sequential(Block(), Block())


def make_batch(batch_size=4):
    return (randn(batch_size, 16, 8),)


def compute_loss(model, batch):
    return model(batch[0]).square().mean()


def tensor_parallel_plan():
    return {"*.up": "colwise", "*.down": "rowwise"}
"""
"""The smallest model of that kind: what else is compiled beside it is looked at above."""


def test_computing_blocks_anew_changes_no_loss(tmp_path: Path) -> None:
    kept = _train(tmp_path / "kept", TP2)
    assert _train(tmp_path / "anew", TP2, recompute="full") == pytest.approx(kept, abs=EXACT)


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(TP2, marks=pytest.mark.repeats),
        pytest.param(
            {"tensor": 2, "data": 2, "shard": 2, "zero_stage": 3}, marks=pytest.mark.repeats
        ),
        {"tensor": 2, "pipeline": 2},
    ],
    ids=lambda value: ".".join(f"{key}{item}" for key, item in value.items()),
)
def test_a_run_goes_on_exactly(tmp_path: Path, layout: dict[str, Any]) -> None:
    straight = _train(tmp_path / "straight", layout)
    _train(tmp_path / "parts", layout, steps=3)
    assert _train(tmp_path / "parts", layout) == pytest.approx(straight, abs=EXACT)
