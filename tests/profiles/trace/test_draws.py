"""Steps that draw random numbers on the host: the same in every trace, and said."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.draws import drawing_alike
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

Draw = Callable[[], object]


class SelfConditioned(nn.Module):
    """Runs its layer a second time where a draw says so."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.draw = draw

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.draw():
            x = self.layer(x)
        return self.layer(x)


def profile_of(draw: Draw) -> Profile:
    workload = Workload(
        name="drawing",
        path=Path(__file__),
        build_model=lambda: SelfConditioned(draw),
        make_batch=lambda size: (torch.randn(size, 64),),
        compute_loss=lambda model, batch: model(*batch).square().mean(),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    return trace_workload(workload, numerics=("fp32",))


def kernels(profile: Profile) -> list[str]:
    step = profile.step("fp32")
    return [kernel.op for at in step.schedule for kernel in step.segments[at].kernels]


DRAWS: dict[str, Draw] = {
    "Python's random": lambda: random.random() < 0.5,
    "numpy.random": lambda: np.random.rand() < 0.5,
    "torch's generator of the CPU": lambda: torch.rand([]) < 0.5,
}


@pytest.mark.parametrize("generator", DRAWS)
def test_every_trace_draws_the_same_and_says_from_what(generator: str) -> None:
    first, *others = (profile_of(DRAWS[generator]) for _ in range(6))
    (note,) = first.notes
    assert note.startswith(f"drawing draws from {generator} in its step")
    assert [kernels(each) for each in others] == [kernels(first)] * 5


@pytest.mark.parametrize(
    "draw",
    [lambda: True, lambda: torch.rand([]) is None, lambda: torch.tensor(1.0) > 0.5],
    ids=["nothing drawn", "drawn and never read", "read and not drawn"],
)
def test_nothing_is_said_where_no_draw_decides(draw: Draw) -> None:
    assert not profile_of(draw).notes


def test_what_others_draw_is_as_if_nothing_was_traced() -> None:
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand([])
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    with drawing_alike():
        random.random(), np.random.rand(), torch.rand([])
    assert (random.random(), np.random.rand(), torch.rand([])) == expected
