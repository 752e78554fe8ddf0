"""Tensors that a step makes on the CPU are seen before a GPU meets them, and no others."""

from pathlib import Path

import pytest

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.tracing_process.host_tensors import (
    may_make_host_tensors,
    refuse_host_tensors,
)
from gpuplan.profiles.tracing_process.host_tensors_main import host_tensors
from gpuplan.profiles.user_model.spec import parse_model_spec

EXAMPLES = Path(__file__).parents[3] / "examples"
REPEATED = {"decoder", "vit"}
"""Examples whose parts are in others: blocks of a decoder in lora.py, of images in ResNets."""
FILE = """
import torch
import torch.nn.functional as F
from torch import nn

SCALE = torch.tensor([2.0, 3.0])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(100, 16), nn.Embedding(32, 16)
        self.head = nn.Linear(16, 100)
        self.mask = torch.ones(32, 32).tril()
        self.register_buffer("kept", torch.ones(32, 16))

    def forward(self, x):
        hidden = self.words(x)
        {line}
        return self.head(hidden)

def build_model():
    return Net()

def make_batch(batch_size=4):
    return (torch.randint(100, (batch_size, 32)),)

def compute_loss(model, batch):
    x = batch[0]
    loss = F.cross_entropy(model(x).flatten(0, 1), x.flatten())
    {loss}
    return loss
"""
MIXED = [
    "hidden = hidden + self.places(torch.arange(x.shape[1]))",
    "hidden = torch.cat([hidden, torch.zeros(len(x), 1, 16)], 1)[:, :32]",
    "hidden = hidden * self.mask[0, :16]",
    "hidden = hidden * SCALE.repeat(8)",
    "hidden = self.mask @ hidden",
    "hidden = hidden + torch.randn(len(x), 32, 16).sigmoid()",
    "hidden = hidden.masked_fill(torch.ones(32, 16) > 2, 0)",
]
RIGHT = [
    "hidden = hidden + self.places(torch.arange(x.shape[1], device=x.device))",
    "hidden = hidden + self.places(torch.arange(x.shape[1]).to(x.device))",
    "hidden = hidden + torch.zeros(32, 16).cuda() + torch.ones(32, 16).type_as(hidden)",
    "hidden = hidden * torch.tensor(2.0) + hidden.new_zeros(16) + self.kept",
    "hidden = hidden[:, torch.arange(32)] + self.kept[torch.arange(32)]",
    "hidden = torch.where(hidden > 0, hidden, torch.tensor(0.0))",
    "sizes = torch.arange(3) + torch.ones(3); hidden = hidden * float(sizes.sum())",
    "new = torch.empty_like(hidden); new.copy_(torch.zeros(4, 32, 16)[:1]); hidden = hidden + new",
    "hidden = hidden + torch.zeros_like(hidden)",
]


def write(folder: Path, line: str = "pass", loss: str = "pass") -> Path:
    path = folder / "net.py"
    path.write_text(FILE.replace("{line}", line).replace("{loss}", loss))
    return path


@pytest.mark.parametrize("line", MIXED)
def test_a_line_that_mixes_devices_is_found(tmp_path: Path, line: str) -> None:
    spec = parse_model_spec(str(write(tmp_path, line)))
    assert may_make_host_tensors(spec)
    found = host_tensors(spec)
    assert found is not None
    assert found.message.startswith("net.py:18, in forward: a tensor of the shape")
    assert line in found.message


@pytest.mark.parametrize("line", RIGHT)
def test_a_line_that_a_gpu_takes_is_none(tmp_path: Path, line: str) -> None:
    assert host_tensors(parse_model_spec(str(write(tmp_path, line)))) is None


@pytest.mark.usefixtures("own_trace_processes")
def test_a_child_process_finds_it_in_the_loss_too(tmp_path: Path) -> None:
    path = write(tmp_path, loss="loss = (loss * torch.ones(3)).mean()")
    with pytest.raises(UserFileError, match=r"net\.py:30, in compute_loss: .*shape \[3\]") as found:
        refuse_host_tensors(parse_model_spec(str(path)))
    assert "device=x.device" in (found.value.fix or "")


@pytest.mark.parametrize(
    "text",
    [
        "def make_batch(n):\n    return torch.randn(n)\n",
        "def forward(x):\n    return torch.zeros(3, device=x.device)\n",
        "def forward(x, **how):\n    return torch.zeros(3, **how)\n",
        "torch.set_default_device('cuda')\nx = torch.zeros(3)\n",
        "import lightning\nx = torch.zeros(3)\n",
        "x = torch.zeros(3\n",
    ],
)
def test_a_file_that_makes_none_starts_no_process(tmp_path: Path, text: str) -> None:
    path = tmp_path / "net.py"
    path.write_text(text)
    assert not may_make_host_tensors(parse_model_spec(str(path)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.repeats if path.stem in REPEATED else ())
        for path in sorted(EXAMPLES.glob("*.py"))
    ],
)
def test_the_examples_mix_none(path: Path) -> None:
    spec = parse_model_spec(str(path))
    refuse_host_tensors(spec)
