"""Operations that write values of one dtype: a trace refuses two, as real tensors do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

pytestmark = pytest.mark.slow

WIDTH = 8
Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]
"""(written into, rows, values)."""
WRITES: dict[str, Write] = {
    "index_add": lambda into, rows, values: into.index_add(0, rows, values),
    "index_add_": lambda into, rows, values: into.index_add_(0, rows, values),
    "index_copy": lambda into, rows, values: into.index_copy(0, rows, values),
    "index_copy_": lambda into, rows, values: into.index_copy_(0, rows, values),
    "index_reduce": lambda into, rows, values: into.index_reduce(0, rows, values, "amax"),
    "index_put": lambda into, rows, values: into.index_put((rows,), values),
    "index_put_": lambda into, rows, values: into.index_put_((rows,), values, accumulate=True),
    "assignment": lambda into, rows, values: into.__setitem__(rows, values),
    "put_": lambda into, rows, values: into.put_(rows, values[:, 0].clone()),
}


class Routed(nn.Module):
    """Sends rows through a layer and writes them back, as a mixture of experts does."""

    def __init__(self, write: Write, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.layer, self.write, self.dtype = nn.Linear(WIDTH, WIDTH), write, dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(x.shape[0], device=x.device)
        values = self.layer(x)
        into = torch.zeros_like(x, dtype=self.dtype or values.dtype)
        found = self.write(into, rows, values)
        written = found if found is not None else into
        return written.float().square().mean() + values.float().mean()


def workload(write: Write, dtype: torch.dtype | None) -> Workload:
    return Workload(
        name="routed",
        path=Path(__file__),
        build_model=lambda: Routed(write, dtype),
        make_batch=lambda size: (torch.randn(size, WIDTH),),
        compute_loss=lambda model, batch: model(*batch),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )


@pytest.mark.parametrize("name", WRITES)
def test_two_dtypes_are_refused_as_on_real_tensors(name: str) -> None:
    two = workload(WRITES[name], torch.float64)
    with pytest.raises((RuntimeError, IndexError)):
        two.compute_loss(two.build_model(), two.make_batch(2))
    with pytest.raises(RuntimeError, match="one dtype, but got float64 and float32"):
        trace_workload(two, numerics=["fp32"])


@pytest.mark.parametrize("name", WRITES)
def test_one_dtype_is_traced(name: str) -> None:
    one = workload(WRITES[name], None)
    one.compute_loss(one.build_model(), one.make_batch(2)).backward()
    assert trace_workload(one, numerics=["fp32", "amp16"]).numerics() == ("fp32", "amp16")


def test_autocast_casts_no_assignment() -> None:
    """It is what a mixture of experts without `.to(x.dtype)` fails with under autocast."""
    into_fp32 = workload(WRITES["assignment"], torch.float32)
    assert trace_workload(into_fp32, numerics=["fp32"])
    with pytest.raises(RuntimeError, match="one dtype, but got float32 and bfloat16"):
        trace_workload(into_fp32, numerics=["amp16"])
