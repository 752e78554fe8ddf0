"""How often FSDP gathers a block: what the runner asks of torch's `fully_shard`."""

from typing import Any

import pytest
from torch import nn

from gpuplan.launcher.runner.job import Execution
from gpuplan.launcher.runner.parallel import parallelize
from gpuplan.planner.plan.layout import Layout


@pytest.mark.parametrize(
    ("zero_stage", "pipeline", "frees"), [(3, 1, True), (3, 2, False), (2, 1, False)]
)
def test_blocks_of_pipeline_stages_are_gathered_once_a_step(
    monkeypatch: pytest.MonkeyPatch, zero_stage: int, pipeline: int, frees: bool
) -> None:
    """torch's pipelines keep them from the first backward pass on, whatever forward freed."""
    asked: list[bool] = []

    def noted(_module: nn.Module, *, reshard_after_forward: bool, **_how: Any) -> None:
        asked.append(reshard_after_forward)

    monkeypatch.setattr(parallelize, "fully_shard", noted)
    layout = Layout(data=2, shard=2, zero_stage=zero_stage, pipeline=pipeline)
    execution = Execution(layout=layout, precision="fp32", micro_batch=1)
    blocks = [nn.Linear(1, 1), nn.Linear(1, 1)]
    mesh: Any = {"shard": None}
    parallelize.spread(nn.ModuleList(blocks), blocks, execution, mesh)
    assert asked == [frees, frees, False]
