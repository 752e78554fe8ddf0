"""A step that runs as it was written, and fails under autocast: planned in fp32, with a note."""

from pathlib import Path
from textwrap import dedent

import pytest

from gpuplan import api
from gpuplan.catalog.errors import UsageError, UserFileError
from gpuplan.profiles.missing_numerics import AUTOCAST_FAILS

ROUTED = """
    import torch
    from torch import nn

    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.expert = nn.Linear(64, 64)

        def forward(self, x):
            rows = torch.arange(x.shape[0], device=x.device)
            out = torch.zeros_like(x)
            out[rows] = self.expert(x)
            return out

    def build_model():
        return Routed()

    def make_batch(batch_size=8):
        return (torch.randn(batch_size, 64),)

    def compute_loss(model, batch):
        return model(*batch).square().mean()
"""
LINE = "model.py:12, in forward"
QUESTION = api.Question(
    work=api.Work(samples=10**6, global_batch=64),
    machine=api.Machine(accelerators=("A100-40GB-SXM",), providers=("aws",), max_nodes=1),
)

pytestmark = pytest.mark.slow


def write(folder: Path, text: str = ROUTED) -> Path:
    file = folder / "model.py"
    file.write_text(dedent(text).lstrip())
    return file


def test_plans_in_fp32_stay_and_one_note_names_the_line(tmp_path: Path) -> None:
    inputs = api.read_inputs(write(tmp_path), use_cache=False)
    assert inputs.profile.numerics() == ("fp32",)
    answer = api.estimate(inputs, QUESTION)
    assert {plan.precision for plan in answer.plans} <= {"fp32", "tf32"}
    assert answer.plans
    (note,) = [note for note in answer.notes if "utocast" in note]
    assert note.startswith(f"{AUTOCAST_FAILS} at {LINE}: RuntimeError:")
    with pytest.raises(UsageError, match=f"{AUTOCAST_FAILS} at {LINE}"):
        api.fits(inputs, "A10G", precision="bf16-amp")


def test_autocast_asked_for_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserFileError, match=LINE):
        api.read_inputs(write(tmp_path), precisions=("bf16-amp",), use_cache=False)


def test_a_file_that_casts_by_itself_is_an_error(tmp_path: Path) -> None:
    text = ROUTED.replace(
        "return model(*batch).square().mean()",
        "\n        with torch.autocast('cuda'):\n            return model(*batch).square().mean()",
    )
    with pytest.raises(UserFileError, match=LINE):
        api.read_inputs(write(tmp_path, text), use_cache=False)


BF16_BASE = """
    import torch
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(512, 512, bias=False, dtype=torch.bfloat16)
            self.base.requires_grad_(False)
            self.adapter = nn.Linear(512, 4, bias=False)
            self.up = nn.Linear(4, 512, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.adapter(x))

    def build_model():
        return Adapted()

    def make_batch(batch_size=8):
        return (torch.randn(batch_size, 512),)

    def compute_loss(model, batch):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(*batch).float().square().mean()
"""


def test_a_base_in_bf16_under_the_files_own_autocast_is_read(tmp_path: Path) -> None:
    """A trace in fp32, which leaves the autocast out, fails: nobody runs the file so."""
    file = write(tmp_path, BF16_BASE)
    profile = api.read_inputs(file, use_cache=False).profile
    assert "fp32" not in profile.numerics() and profile.file_precision == "bf16-amp"
    assert api.fits(api.read_inputs(file), "A10G").precision == "bf16-amp"
    assert api.profile(file, use_cache=False).numerics()[0] == "amp16"
    with pytest.raises(UserFileError, match="in forward"):
        api.read_inputs(file, precisions=("fp32",), use_cache=False)


def test_without_autocast_of_its_own_it_is_an_error(tmp_path: Path) -> None:
    text = BF16_BASE.replace('with torch.autocast("cuda", dtype=torch.bfloat16):', "if True:")
    with pytest.raises(UserFileError, match="in forward"):
        api.read_inputs(write(tmp_path, text), use_cache=False)
