"""When only the first process builds the model, and what cannot be built without memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.catalog.errors import UserFileError
from gpuplan.launcher.runner.job import Execution
from gpuplan.launcher.runner.parallel import initial_weights
from gpuplan.planner.plan.layout import Layout

HOST_BYTES = 2e12


class Table(nn.Module):
    def __init__(self, hidden: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        values = torch.arange(4.0)
        if hidden:
            self.values = values
        else:
            self.register_buffer("values", values, persistent=False)


def workload(build: Any) -> Any:
    return SimpleNamespace(build_model=build)


def test_a_model_is_built_without_memory() -> None:
    model = initial_weights.build_without_memory(workload(lambda: Table(hidden=False)))

    assert all(one.is_meta for one in (*model.parameters(), *model.buffers()))


def test_a_tensor_that_nobody_would_hand_out_is_named() -> None:
    with pytest.raises(UserFileError, match="values is a tensor") as raised:
        initial_weights.build_without_memory(workload(lambda: Table(hidden=True)))
    assert "register_buffer" in str(raised.value.fix)


def test_a_model_that_reads_values_says_so() -> None:
    def build() -> nn.Module:
        return nn.Linear(2, int(torch.ones(()).item()))

    with pytest.raises(UserFileError, match="without values"):
        initial_weights.build_without_memory(workload(build))


@pytest.mark.parametrize(
    ("parameters", "processes", "nodes", "first"),
    [(8e9, 8, 1, False), (70e9, 8, 1, True), (70e9, 16, 16, False), (None, 8, 1, False)],
)
def test_the_first_builds_alone_where_the_copies_of_a_node_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
    parameters: float | None,
    processes: int,
    nodes: int,
    first: bool,
) -> None:
    monkeypatch.setattr(initial_weights, "host_bytes", lambda: HOST_BYTES)
    monkeypatch.setattr(initial_weights.dist, "broadcast_object_list", lambda *_: None)
    layout = Layout(data=processes, shard=processes, zero_stage=3)
    execution = Execution(layout=layout, precision="bf16-amp", micro_batch=1)
    job: Any = SimpleNamespace(one_copy=None, parameters=parameters)
    world: Any = SimpleNamespace(world=processes, nodes=nodes, host_group=None)

    assert initial_weights.only_first_builds(job, execution, world) is first


def test_data_parallel_processes_each_keep_the_whole_model(tmp_path: Path) -> None:
    execution = Execution(layout=Layout(data=8), precision="fp32", micro_batch=1)
    job: Any = SimpleNamespace(one_copy=True, parameters=70e9)

    assert not initial_weights.only_first_builds(job, execution, SimpleNamespace(world=8))  # pyright: ignore[reportArgumentType]
