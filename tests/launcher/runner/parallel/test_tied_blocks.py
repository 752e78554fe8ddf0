"""Blocks that share weights: trained right, or refused by name before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runner_jobs import REPOSITORY, make_job, plan_of, run, train

pytestmark = [pytest.mark.slow, pytest.mark.spread]

MODEL = REPOSITORY / "tests" / "support" / "models" / "tied_blocks_model.py"
FSDP = {"data": 2, "shard": 2, "zero_stage": 3}
ZERO1 = {"data": 2, "shard": 2, "zero_stage": 1}
TOLERANCE = 1e-5


def _fields(layout: dict[str, Any], shared: str) -> dict[str, Any]:
    plan = plan_of(layout, micro_batch=4 // layout.get("data", 1))
    return {"plan": plan, "params": {"shared": shared}, "steps": 4, "workers": 0}


@pytest.mark.parametrize(
    ("layout", "shared", "names"),
    [
        (FSDP, "weight", "blocks.0.up.weight and blocks.1.up.weight"),
        (ZERO1, "part", "blocks.0.up.weight and blocks.1.up.weight"),
        (FSDP, "rest", "blocks.0.norm.weight and other.weight"),
    ],
)
def test_sharding_block_by_block_is_refused_by_name(
    tmp_path: Path, layout: dict[str, Any], shared: str, names: str
) -> None:
    done = run(make_job(tmp_path, MODEL, **_fields(layout, shared)), 2)
    assert done.returncode == 3
    assert f"{names} are one weight (tied), and FSDP" in done.stderr


@pytest.mark.parametrize(
    ("layout", "shared"), [({"data": 2}, "weight"), ({"data": 2}, "part"), (FSDP, "block")]
)
def test_what_runs_trains_as_one_process(
    tmp_path: Path, layout: dict[str, Any], shared: str
) -> None:
    alone = train(tmp_path / "alone", MODEL, 1, **_fields({}, shared))
    spread = train(tmp_path / "spread", MODEL, 2, **_fields(layout, shared))
    assert spread == pytest.approx(alone, abs=TOLERANCE)
