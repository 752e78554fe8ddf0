"""What ranks exchange of parameters that are 8 bytes each, under every precision."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import gathered_width
from gpuplan.planner.predict.setup import Setup
from gpuplan.planner.predict.step_time import wire_of
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

SETUP = Setup(layout=Layout(data=8, shard=8, zero_stage=3), precision="fp32", micro_batch=4)


def traced(*dtypes: torch.dtype) -> Profile:
    """Return the profile of layers of one size in these dtypes."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Linear(256, 256, bias=False, dtype=dtype) for dtype in dtypes
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x.to(next(layer.parameters()).dtype))
            return x

    def make_batch(batch_size: int) -> tuple[Any, ...]:
        return (torch.ones(batch_size, 256),)

    def compute_loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return torch.view_as_real(model(*batch) * (1 + 0j)).square().mean()

    made = Workload(
        name="double",
        path=Path(__file__),
        build_model=Model,
        make_batch=make_batch,
        compute_loss=compute_loss,
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    return trace_workload(made, numerics=("fp32", "amp16"))


@pytest.mark.parametrize(
    ("dtypes", "widths"),
    [
        ([torch.float32], (4, 4, 4)),
        ([torch.float64], (8, 8, 8)),
        ([torch.cfloat], (8, 8, 8)),
        ([torch.float32, torch.float64], (6, 6, 6)),
    ],
    ids=["fp32", "fp64", "complex", "half fp64"],
)
def test_eight_bytes_of_a_parameter_are_eight_on_the_wire(
    dtypes: list[torch.dtype], widths: tuple[float, ...]
) -> None:
    """Gathers and reductions were of 4 bytes, whatever a parameter takes."""
    cache = ModelCache(traced(*dtypes))
    wire = wire_of(SETUP, cache.steps)
    assert (wire.gather, wire.reduce, wire.refresh) == pytest.approx(widths)
    assert gathered_width(cache, SETUP) == widths[0]


def test_autocast_leaves_fp64_as_it_is() -> None:
    plain, double = (ModelCache(traced(one)).steps for one in (torch.float32, torch.float64))
    amp = replace(SETUP, precision="bf16-amp")
    found = wire_of(amp, plain)
    assert (found.gather, found.reduce, found.refresh) == (2, 4, 4)
    found = wire_of(amp, double)
    assert (found.gather, found.reduce, found.refresh) == (8, 8, 8)
