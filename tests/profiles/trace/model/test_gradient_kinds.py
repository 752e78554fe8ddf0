"""Trainable parameters that the loss leaves out: no gradient, no state, and a note."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gpuplan.planner.software.checkpoint_size import checkpoint_bytes
from gpuplan.profiles.passes.optimizers import with_optimizer
from gpuplan.profiles.profile import CATEGORIES, Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

pytestmark = pytest.mark.slow

WIDTH, BLOCKS = 16, 3
UNUSED = 500 * 500 + 500
Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Block(nn.Module):
    def __init__(self, *, uses_second: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.uses_second = uses_second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        return self.second(x) if self.uses_second else x


class Model(nn.Module):
    def __init__(self, *, in_last_block: bool = False) -> None:
        super().__init__()
        last = BLOCKS - 1
        self.blocks = nn.ModuleList(
            Block(uses_second=not in_last_block or i < last) for i in range(BLOCKS)
        )
        self.head = nn.Linear(WIDTH, 4)
        if not in_last_block:
            self.unused = nn.Linear(500, 500)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def compute_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def workload(build_optimizer: Optimizer = torch.optim.AdamW, **changes: Any) -> Workload:
    return dataclasses.replace(
        Workload(
            name="left out",
            path=Path(__file__),
            build_model=Model,
            make_batch=lambda size: (torch.randn(size, WIDTH), torch.randint(4, (size,))),
            compute_loss=compute_loss,
            build_optimizer=build_optimizer,
        ),
        **changes,
    )


def real_state_bytes(one: Workload) -> int:
    """Return bytes that the optimizer keeps after a real step on the processor, but for counts."""
    model = one.build_model()
    optimizer = one.build_optimizer(model.parameters())
    one.compute_loss(model, one.make_batch(2)).backward()
    optimizer.step()
    return sum(
        value.numel() * value.element_size()
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.dim()
    )


def traced_bytes(profile: Profile, category: str) -> int:
    memory = profile.steps[0].memory
    number = CATEGORIES.index(category)  # pyright: ignore[reportArgumentType]
    return sum(
        size
        for size, each in zip(memory.bytes_base, memory.category, strict=True)
        if each == number
    )


def test_it_has_no_gradient_and_is_counted() -> None:
    profile = trace_workload(workload(), numerics=["fp32"])
    assert profile.unused_parameters == UNUSED
    assert profile.trained_parameters == profile.parameters - UNUSED
    assert traced_bytes(profile, "gradients") == 4 * profile.trained_parameters
    assert sum(t.rows * t.row_elements for t in profile.root_tensors if t.trainable) == 4 * 17
    assert profile.optimizer.state_bytes_per_parameter == 8
    adafactor = with_optimizer(profile, "adafactor").optimizer
    assert adafactor.step_bytes_per_parameter == pytest.approx(17 * 4, rel=0.01)


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adagrad])
def test_the_optimizer_keeps_what_it_really_keeps(optimizer: Optimizer) -> None:
    """Adagrad makes its state before it has seen a gradient, Adam does not."""
    one = workload(optimizer)
    profile = trace_workload(one, numerics=["fp32"])
    assert traced_bytes(profile, "optimizer") == real_state_bytes(one)
    weights = 4 * profile.parameters
    assert checkpoint_bytes(profile, "fp32") == pytest.approx(weights + real_state_bytes(one))


def test_the_user_is_told_once() -> None:
    (note,) = trace_workload(workload(), numerics=["fp32", "amp16"]).notes
    assert f"{UNUSED:,} parameters" in note
    assert "unused.weight, unused.bias" in note and "freeze" in note


def test_what_only_some_blocks_use_counts_outside_the_blocks() -> None:
    one = workload(build_model=lambda: Model(in_last_block=True))
    profile = trace_workload(one, numerics=["fp32"])
    linear = WIDTH * WIDTH + WIDTH
    assert profile.unused_parameters == linear
    assert profile.blocks[0].trained_parameters == linear
    blocks = BLOCKS * profile.blocks[0].trained_parameters
    assert profile.trained_parameters - blocks == (BLOCKS - 1) * linear + 4 * (WIDTH + 1)
