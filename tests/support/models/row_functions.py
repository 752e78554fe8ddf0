"""Models of one function of a batch, whose steps depend on the values of tensors."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gpuplan.profiles.profile import Kernel, Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.assumptions import parse_assumptions
from gpuplan.profiles.user_model.workload import Workload

ROWS, WIDTH = 10, 16
Function = Callable[[torch.Tensor], torch.Tensor]


class Rows(nn.Module):
    """Multiplies what a function makes of the batch, [batch, rows, width], by a weight."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layer = nn.Linear(WIDTH, 4)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.function(self.first(x))).sum()


def file_of(function: Any) -> Path:
    return Path(function.__code__.co_filename)


def workload(function: Function) -> Workload:
    return Workload(
        name="rows",
        path=file_of(function),
        build_model=lambda: Rows(function),
        make_batch=lambda size: (torch.randn(size, ROWS, WIDTH),),
        compute_loss=lambda model, batch: model(*batch),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )


def traced(function: Function, assumed: Mapping[str, Any] | None = None) -> Profile:
    return trace_workload(
        workload(function), numerics=["fp32"], assumptions=parse_assumptions(assumed or {})
    )


def line_of(function: Any, offset: int = 0) -> str:
    """Return the line of a function as an option names it."""
    return f"{file_of(function).name}:{function.__code__.co_firstlineno + offset}"


def kernels(profile: Profile) -> list[Kernel]:
    step = profile.step("fp32")
    return [kernel for at in step.schedule for kernel in step.segments[at].kernels]


def forward_kernels(profile: Profile) -> list[Kernel]:
    step = profile.step("fp32")
    segments = (step.segments[at] for at in step.schedule)
    return [kernel for one in segments if one.phase == "forward" for kernel in one.kernels]
