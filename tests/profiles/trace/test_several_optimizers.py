"""What a trace counts of several optimizers of one loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.profiles.profile import CATEGORIES, Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.several_optimizers import as_one_optimizer
from gpuplan.profiles.user_model.workload import Workload

pytestmark = pytest.mark.slow

WIDTH = 256
MATRICES, OTHERS = 2 * WIDTH * WIDTH, 2 * WIDTH
OPTIMIZER = CATEGORIES.index("optimizer")


def _split(parameters: Any) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    listed = list(parameters)
    return [one for one in listed if one.ndim == 2], [one for one in listed if one.ndim < 2]


def _profile(build_optimizer: Any) -> Profile:
    workload = Workload(
        name="two",
        path=Path(__file__),
        build_model=lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)),
        make_batch=lambda size: (torch.randn(size, WIDTH),),
        compute_loss=lambda model, batch: model(*batch).square().mean(),
        build_optimizer=build_optimizer,
    )
    return trace_workload(workload, numerics=["fp32"])


def _kept_bytes(profile: Profile) -> int:
    memory = profile.steps[0].memory
    return sum(
        size
        for size, category in zip(memory.bytes_base, memory.category, strict=True)
        if category == OPTIMIZER
    )


def test_the_state_is_that_of_each() -> None:
    def both(parameters: Any) -> torch.optim.Optimizer:
        matrices, others = _split(parameters)
        return as_one_optimizer([torch.optim.SGD(matrices, momentum=0.9), torch.optim.Adam(others)])

    profile = _profile(both)
    assert profile.optimizer.name == "sgd+adam"
    # SGD keeps a momentum in fp32, Adam two moments; its counts of steps are on the host.
    kept = 4 * MATRICES + 8 * OTHERS
    assert profile.optimizer.state_bytes_per_parameter * (MATRICES + OTHERS) == kept
    assert _kept_bytes(profile) == kept


def test_the_step_takes_as_long_as_each_of_them_over_its_own() -> None:
    def of(matrices: bool, others: bool) -> Any:
        def build(parameters: Any) -> torch.optim.Optimizer:
            of_matrices, of_others = _split(parameters)
            made = []
            if matrices:
                made.append(torch.optim.Muon(of_matrices))
            if others:
                made.append(torch.optim.AdamW(of_others))
            return as_one_optimizer(made)

        return build

    both, matrices, others = (
        _profile(of(*each)).optimizer for each in ((True, True), (True, False), (False, True))
    )
    assert both.name == "muon+adamw"
    assert both.launches == matrices.launches + others.launches
    assert both.step_bytes_per_parameter == pytest.approx(
        matrices.step_bytes_per_parameter + others.step_bytes_per_parameter
    )
