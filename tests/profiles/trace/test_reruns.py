"""What a file's own checkpoint runs again is work of the device, and not of the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gpuplan.planner.predict.kept.kept_steps import KeptSteps
from gpuplan.profiles.profile import Kernel, Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

WIDTH, LENGTH, BLOCKS = 64, 128, 3


class Block(nn.Module):
    """Attention and a feed-forward part, of which one may run again."""

    def __init__(self, again: str, *, reentrant: bool) -> None:
        super().__init__()
        layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)]
        self.query, self.key, self.value, self.out = layers
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.again, self.reentrant = again, reentrant

    def attend(self, *parts: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in parts)
        found = nn.functional.scaled_dot_product_attention(query, key, value)
        return found.transpose(1, 2).flatten(2)

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))

    def run(self, name: str, *args: torch.Tensor) -> torch.Tensor:
        function: Callable[..., Any] = getattr(self, name)
        if name != self.again:
            return function(*args)
        return checkpoint(function, *args, use_reentrant=self.reentrant)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.out(self.run("attend", self.query(x), self.key(x), self.value(x)))
        return x + self.run("feed", x)


class Stack(nn.Module):
    """Blocks, behind a layer outside of them that may run again too."""

    def __init__(self, again: str = "", *, reentrant: bool = False) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.ModuleList(Block(again, reentrant=reentrant) for _ in range(BLOCKS))
        self.again = again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.again == "root":
            x = checkpoint(lambda y: self.first(y), x, use_reentrant=False)
        else:
            x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


def profile_of(again: str = "", *, reentrant: bool = False) -> Profile:
    def make_batch(batch_size: int) -> tuple[Any, ...]:
        return (torch.ones(batch_size, LENGTH, WIDTH),)

    return trace_workload(
        Workload(
            name="stack",
            path=Path(__file__),
            build_model=lambda: Stack(again, reentrant=reentrant),
            make_batch=make_batch,
            compute_loss=lambda model, batch: model(*batch).square().mean(),
            build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        ),
        numerics=("fp32", "amp16"),
    )


def kernels(profile: Profile) -> list[Kernel]:
    step = profile.step("amp16")
    return [kernel for at in step.schedule for kernel in step.segments[at].kernels]


@pytest.fixture(scope="module")
def plain() -> Profile:
    return profile_of()


LINEAR = 2 * LENGTH * WIDTH * WIDTH
FEED = 4 * LINEAR
"""The product that widens; the last one is not run again, for nothing of it is kept."""
ATTENTION = 4 * LENGTH**2 * WIDTH


@pytest.mark.parametrize(
    ("again", "reentrant", "flops"),
    [
        ("feed", False, BLOCKS * FEED),
        ("feed", True, BLOCKS * 2 * FEED),
        ("attend", False, BLOCKS * ATTENTION),
        ("root", False, LINEAR),
    ],
)
def test_reruns_are_no_flops_of_the_model(
    plain: Profile, again: str, reentrant: bool, flops: int
) -> None:
    """A rerun of attention was counted three times, as if it had a backward pass of its own."""
    found = profile_of(again, reentrant=reentrant)
    assert found.flops == plain.flops
    assert sum(kernel.flops.at(1) for kernel in kernels(found) if kernel.rerun) == flops
    executed = [sum(kernel.flops.at(1) for kernel in kernels(each)) for each in (found, plain)]
    assert executed[0] - executed[1] == flops
    hardware = KeptSteps(found).hardware_flops("bf16-amp", "none", 1)
    assert hardware - found.flops.at(1) == flops


def test_a_step_without_checkpoints_runs_nothing_again(plain: Profile) -> None:
    assert not any(kernel.rerun for kernel in kernels(plain))
    assert KeptSteps(plain).hardware_flops("bf16-amp", "none", 1) == plain.flops.at(1)
