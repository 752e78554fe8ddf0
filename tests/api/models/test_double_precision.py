"""A model in fp64 is said to be one: no precision of a plan changes that."""

from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.api.models.double_precision import fp64_share, with_fp64_note
from gpuplan.cli.render.profile import render_profile

DOUBLE = """
import torch


class Net(torch.nn.Module):
    def __init__(self, double_layers):
        super().__init__()
        self.parts = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))
        for part in list(self.parts)[:double_layers]:
            part.double()

    def forward(self, x):
        for part in self.parts:
            x = part(x.to(part.weight.dtype))
        return x


def build_model(double_layers=4):
    return Net(double_layers)


def make_batch(batch_size):
    return torch.randn(batch_size, 64)


def compute_loss(model, batch):
    return model(batch).square().mean()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "double.py"
    path.write_text(DOUBLE)
    return path


def test_a_file_in_fp64_is_said_to_be_in_fp64(file: Path) -> None:
    """It was "fp32 then" in the profile, and nothing in the answers."""
    profile = api.profile(file)
    assert fp64_share(profile) == 1.0
    (note,) = [note for note in profile.notes if "fp64" in note]
    assert note.startswith("all products are in fp64 under every --precision")
    assert with_fp64_note(profile) is profile, "it is said once"
    lines = [line.plain for line in render_profile(profile, api.step_summary(profile), width=100)]
    assert any("the file sets none (fp64 where its tensors are, else fp32)" in one for one in lines)


def test_a_part_in_fp64_is_said_with_its_share_and_none_is_not(file: Path) -> None:
    part = api.profile(file, params={"double_layers": 2})
    assert 0.3 < fp64_share(part) < 0.7
    assert any("% of the FLOPs are in fp64" in note for note in part.notes)
    none = api.profile(file, params={"double_layers": 0})
    assert fp64_share(none) == 0.0
    assert not any("fp64" in note for note in none.notes)
