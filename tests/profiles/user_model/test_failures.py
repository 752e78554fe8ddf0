"""What a file's failure is told to do about it."""

from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.catalog.errors import UserFileError

ADAPTERS = """
import torch

class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(8, 8, dtype=torch.bfloat16).requires_grad_(False)
        self.down, self.up = torch.nn.Linear(8, 2), torch.nn.Linear(2, 8)
    def forward(self, x):
        return self.base(x) + self.up(self.down(x))

def build_model(): return Adapted()
def make_batch(batch_size): return (torch.randn(batch_size, 8, dtype=torch.bfloat16),)
def compute_loss(model, batch): return model(*batch).square().mean()
"""


def test_weights_of_two_dtypes_are_told_of_autocast(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(ADAPTERS)
    with pytest.raises(UserFileError, match="takes tensors of one dtype") as failed:
        api.profile(path)
    assert failed.value.fix is not None
    assert "correct net.py; or, where your training runs under autocast" in failed.value.fix
    assert "--precision bf16-amp" in failed.value.fix
    assert api.profile(path, precision="bf16-amp").trainable_parameters == 42


def test_a_package_that_asks_for_another_is_not_the_files_fault(tmp_path: Path) -> None:
    """A Trainer without accelerate raises ImportError: the file was to be corrected."""
    path = tmp_path / "net.py"
    path.write_text("raise ImportError('the Trainer requires accelerate')\n")
    with pytest.raises(UserFileError, match="the Trainer requires accelerate") as failed:
        api.profile(path)
    wanted = "install what it asks for beside gpuplan, or correct net.py."
    assert failed.value.fix == wanted
    path.write_text("from torch import no_such_name\n")
    with pytest.raises(UserFileError) as failed:
        api.profile(path)
    assert failed.value.fix == "correct net.py, then run this again."


def test_other_failures_are_told_to_be_corrected(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(ADAPTERS.replace("self.base(x) +", "self.base(x[0, 0, 0]) +"))
    with pytest.raises(UserFileError) as failed:
        api.profile(path, precision="bf16-amp")
    assert failed.value.fix == "correct net.py, then run this again."


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("torch.load('/no/such/best.pt')", "correct net.py, or for an estimate, leave out"),
        ("open('no/such.yaml')", "it is run in the current folder, where relative paths begin"),
        ("AutoModel.from_pretrained('a/b')", "correct net.py, or for an estimate, where"),
        ("torch.nn.Embedding(9, 3)(torch.randn(2, 4))", "--input 128:int64"),
        ("torch.nn.Linear(3, 3)(torch.randn(2, 4))", "correct net.py, then run this again."),
    ],
)
def test_weights_on_another_machine_are_not_needed(tmp_path: Path, line: str, fix: str) -> None:
    """The file was to be corrected, whose only fault was to be here."""
    loads = "class AutoModel:\n    def from_pretrained(name): raise OSError('no connection')\n"
    path = tmp_path / "net.py"
    path.write_text(f"{loads}{ADAPTERS}\ndef build_optimizer(ps):\n    {line}\n")
    with pytest.raises(UserFileError) as failed:
        api.profile(path, precision="bf16-amp")
    assert fix in (failed.value.fix or "")


def test_an_operator_that_runs_functions_is_told_what_an_estimate_takes(tmp_path: Path) -> None:
    """It was answered with a hint for authors of tracers, and that the file was to be corrected."""
    path = tmp_path / "net.py"
    path.write_text(
        "import torch\n"
        "def build_model(): return torch.nn.Linear(16, 16)\n"
        "def make_batch(batch_size): return torch.randn(batch_size, 16),\n"
        "def compute_loss(model, batch):\n"
        "    x = model(batch[0])\n"
        "    return torch.cond(x.sum() > 0, lambda x: x, lambda x: -x, (x,)).mean()\n"
    )
    with pytest.raises(UserFileError, match="torch's cond is given functions to run") as failed:
        api.profile(path)
    assert "Hint" not in failed.value.message
    assert "in plain calls" in str(failed.value.fix)


def test_a_param_that_was_given_may_be_at_fault(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(ADAPTERS.replace("def build_model():", "def build_model(n=1): range(n);"))
    with pytest.raises(UserFileError, match="'str' object cannot") as failed:
        api.profile(path, params={"n": "abc"})
    assert failed.value.fix == "correct net.py, or --param n=abc, then run this again."


def test_a_relative_import_outside_of_a_package_says_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text("from .layers import Block\n")
    with pytest.raises(UserFileError, match="attempted relative import") as failed:
        api.profile(path)
    assert "`from layers import Block`" in (failed.value.fix or "")


def test_a_kernel_of_triton_is_not_to_be_corrected(tmp_path: Path) -> None:
    """Where torch brought triton and there is no device, triton asked for libcuda.so."""
    path = tmp_path / "net.py"
    path.write_text(
        "import types\n"
        "runtime = types.ModuleType('triton.runtime.driver')\n"
        "exec('def launch():\\n    raise AssertionError(\"libcuda.so cannot found!\")',"
        " vars(runtime))\n"
        "runtime.launch()\n"
    )
    with pytest.raises(UserFileError, match="net.py:4: runs a kernel of Triton") as failed:
        api.profile(path)
    assert "torch calls of the same shapes" in (failed.value.fix or "")
