"""A small model, and what a trace of it is made from."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from gpuplan.profiles.profile import Kernel, StepTrace
from gpuplan.profiles.user_model.workload import Workload

WIDTH = 16


class Mlp(nn.Module):
    def __init__(self, forward: Callable[[nn.Module, torch.Tensor], torch.Tensor] | None = None):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)
        self.run = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.run is not None:
            x = self.run(self, x)
        return self.head(torch.relu(self.layer(x)))


def compute_mlp_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def workload(**changes: Any) -> Workload:
    """Return it as a file would give it; `path` is that of the file whose lines are told."""
    return dataclasses.replace(
        Workload(
            name="mlp",
            path=Path(__file__),
            build_model=Mlp,
            make_batch=lambda size: (torch.randn(size, WIDTH), torch.randint(4, (size,))),
            compute_loss=compute_mlp_loss,
            build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        ),
        **changes,
    )


def kernels(step: StepTrace, *phases: str) -> list[Kernel]:
    return [
        kernel
        for index in step.schedule
        if not phases or step.segments[index].phase in phases
        for kernel in step.segments[index].kernels
    ]
