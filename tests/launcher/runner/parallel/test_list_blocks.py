"""Repeated blocks that are lists of modules: their members are sharded, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from grouped_model import Block
from list_blocks_model import Levels
from runner_jobs import REPOSITORY, plan_of, train
from torch import nn

from gpuplan.launcher.runner.parallel.parallelize import block_modules

MODEL = REPOSITORY / "tests" / "support" / "models" / "list_blocks_model.py"
TOLERANCE = 1e-5


def test_the_members_of_a_list_stand_for_it_and_those_without_parameters_are_left_out() -> None:
    found = block_modules(Levels())
    assert [type(one) for one in found] == [Block, nn.Linear] * 3


def test_a_block_that_is_called_stands_for_itself() -> None:
    class Called(nn.ModuleList):
        def forward(self, x: Any) -> Any:
            return x

    called = [Called([Block(), nn.Linear(8, 8)]) for _ in range(2)]
    assert block_modules(nn.ModuleList(called)) == called
    sequences = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2)]
    assert block_modules(nn.ModuleList(sequences)) == sequences


@pytest.mark.slow
@pytest.mark.spread
@pytest.mark.parametrize("zero_stage", [1, 3])
def test_shards_train_as_one_process_does(tmp_path: Path, zero_stage: int) -> None:
    """Such plans were said to run, and torch's `fully_shard` refused them on rented machines."""
    alone = train(tmp_path / "alone", MODEL, 1, plan=plan_of({}, micro_batch=4), workers=0)
    layout = {"data": 2, "shard": 2, "zero_stage": zero_stage}
    split = plan_of(layout, micro_batch=2)
    spread = train(tmp_path / "spread", MODEL, 2, plan=split, workers=0)
    assert spread == pytest.approx(alone, abs=TOLERANCE)
