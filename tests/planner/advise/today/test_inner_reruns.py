"""A checkpoint around a function of a block stands among the kernels of its backward pass."""

from pathlib import Path
from typing import Any

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.advise.advise import advise
from gpuplan.planner.advise.today.inner_reruns import flops_of_inner_reruns
from gpuplan.planner.advise.today.own_recompute import (
    own_recompute,
    own_recompute_notes,
    without_own_recompute,
)
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

FILE = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)
        self.again = again

    def mlp(self, x):
        return self.down(nn.functional.gelu(self.up(self.norm(x))))

    def forward(self, x):
        return x + (checkpoint(self.mlp, x, use_reentrant=False) if self.again else self.mlp(x))

class Model(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.blocks = nn.ModuleList(Block(again) for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

def build_model(again=0):
    return Model(again)

def make_batch(batch_size=32):
    return torch.randn(batch_size, 64)

def compute_loss(model, batch):
    return model(batch).square().mean()
"""
UP_FLOPS = 2 * 64 * 256
"""Of one sample: the product that runs again; the last saved tensor is the activation's input."""


def traced(folder: Path, **params: Any) -> Profile:
    path = folder / "inner.py"
    path.write_text(FILE)
    spec = parse_model_spec(str(path), params=params)
    return make_profile(spec, numerics=("fp32", "amp16", "pure16"), use_cache=False)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return traced(tmp_path_factory.mktemp("inner"), again=1)


def test_what_runs_again_among_the_backward_kernels_is_found(profile: Profile) -> None:
    for step in profile.steps:
        found = flops_of_inner_reruns(step)
        assert list(found.values()) == [UP_FLOPS] * 4
        assert {step.segments[step.schedule[at]].phase for at in found} == {"backward"}
    own = own_recompute(profile)
    assert own is not None and (own.again, own.blocks) == (4, 4)
    # Three products of each of two layers, and one of them again.
    assert own.flops_share == pytest.approx(1 / 7)


def test_advice_says_so_and_proposes_nothing_that_it_cannot_tell(profile: Profile) -> None:
    """A file with `checkpoint(self.mlp, x)` was told "recompute none → full"."""
    assert without_own_recompute(profile) is None
    [note] = own_recompute_notes(profile)
    assert note.startswith("the file itself recomputes (4 of 4 blocks, 14 % of the step's FLOPs)")
    question = Question(
        work=Work(samples=1e8),
        machine=Machine(providers=("aws",), instances=("p4d.24xlarge",)),
        choices=Choices(micro_batches=(4096,), precisions=("bf16-amp",)),
    )
    found = advise(question, profile, load_catalogue())
    assert "recompute of 4 of 4 blocks, in the file" in found.assumed
    assert not [one for one in found.changes if one.kind == "recompute"]
    assert note in found.notes


def test_a_plain_backward_pass_runs_nothing_again(tmp_path: Path, small_decoder: Profile) -> None:
    for plain in (traced(tmp_path), small_decoder):
        assert not any(flops_of_inner_reruns(step) for step in plain.steps)
        assert own_recompute(plain) is None
