"""Which loop of a model's code makes its step long."""

import pytest
import torch
from torch import nn
from traced_mlp import workload

from gpuplan.profiles.trace import trace
from gpuplan.profiles.trace.busy_loops import BusyLoop, BusyLoops
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

STEPS = 150


class Looped(nn.Module):
    """Two layers of a recurrence that is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the loop over layers around that over time."""
        for layer in self.layers:
            x = over_time(layer, x)
        return x.sum()


def over_time(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Run the recurrence."""
    for _ in range(STEPS):
        x = torch.tanh(layer(x))
    return x


TIME_LOOP = over_time.__code__.co_firstlineno + 2


def looped() -> Workload:
    """Return the model as a file would give it."""
    return workload(
        build_model=Looped,
        make_batch=lambda size: torch.zeros(size, 4),
        compute_loss=lambda model, batch: model(batch),
    )


def test_the_innermost_loop_of_most_operations_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, BusyLoop | None]] = []
    monkeypatch.setattr(trace, "TOLD_EVERY", 256)
    trace_workload(looped(), numerics=["fp32"], at_work=lambda *news: told.append(news))
    operations, loop = told[0]
    assert operations == 256
    assert loop == BusyLoop(place=f"test_busy_loops.py:{TIME_LOOP}", share=1.0)


def test_looking_changes_nothing_in_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = trace_workload(looped(), numerics=["fp32"])
    monkeypatch.setattr(trace, "TOLD_EVERY", 256)
    assert trace_workload(looped(), numerics=["fp32"], at_work=print) == quiet


def test_nothing_is_known_before_the_first_look() -> None:
    assert BusyLoops().busiest() is None
