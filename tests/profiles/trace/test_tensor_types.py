"""Tensor types of before `device=`: their names, classes and `parameter.data = …`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

pytestmark = pytest.mark.slow

CUDA: Any = torch.cuda
Function = Callable[[torch.Tensor], Any]


def profile_of(
    function: Function, build: Callable[[], nn.Module] = lambda: nn.Linear(8, 8)
) -> Profile:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return function(model(*batch)).float().mean()

    workload = Workload(
        name="types",
        path=Path(__file__),
        build_model=build,
        make_batch=lambda size: (torch.randn(size, 8),),
        compute_loss=loss,
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    return trace_workload(workload)


def names(x: torch.Tensor) -> torch.Tensor:
    assert x.type() in ("torch.cuda.FloatTensor", "torch.cuda.BFloat16Tensor")
    return x.detach().long().type(x.type()) + x


def classes(x: torch.Tensor) -> torch.Tensor:
    made = CUDA.HalfTensor(8)
    assert made.is_cuda and made.dtype == torch.float16 and made.shape == (8,)
    assert isinstance(made, CUDA.HalfTensor) and not isinstance(x, CUDA.HalfTensor)
    known = CUDA.LongTensor([1, 2, 3])
    assert known.shape == (3,) and known.dtype == torch.int64
    return x.type(CUDA.DoubleTensor) + made.type("torch.cuda.DoubleTensor")


def dtypes(x: torch.Tensor) -> torch.Tensor:
    assert torch.ones(2).type() == "torch.FloatTensor"
    return x.type(torch.float16) + x.type_as(torch.ones(1, dtype=torch.float64, device=x.device))


@pytest.mark.parametrize("function", [names, classes, dtypes])
def test_types_are_those_of_a_gpu(function: Function) -> None:
    profile = profile_of(function)
    assert profile.parameters == 72


@pytest.mark.parametrize("rows", [3, 100_000])
def test_a_parameter_may_be_filled_from_numpy(rows: int) -> None:
    """As DLRM does: a large table is made on the device, and its values are the host's."""

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.EmbeddingBag(rows, 8)
            values = np.random.uniform(size=(rows, 8)).astype(np.float32)
            self.table.weight.data = torch.tensor(values, requires_grad=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table(x.detach().long()).sum() + x.sum()

    profile = profile_of(lambda x: x, Table)
    assert profile.parameters == 8 * rows


def test_a_small_parameter_of_the_host_may_get_values_of_the_device() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8))
            self.scale.data = torch.ones(8).cuda()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    assert profile_of(lambda x: x, Scaled).parameters == 8


def test_an_inverse_spectrum_checks_its_own_windows() -> None:
    def through(x: torch.Tensor) -> torch.Tensor:
        wave = x.repeat(1, 64)
        window = torch.hann_window(64, device=x.device)
        spectrum = torch.stft(wave, 64, 16, window=window, return_complex=True)
        return torch.istft(spectrum, 64, 16, window=window, length=wave.shape[-1])

    assert profile_of(through).flops.per_sample > 0
