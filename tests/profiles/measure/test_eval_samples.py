"""How many samples a file evaluates on, or why that is not known."""

from pathlib import Path

import pytest

from gpuplan.profiles.measure.eval_samples import EvalSamples, count_eval_samples
from gpuplan.profiles.measure.eval_samples_main import counted
from gpuplan.profiles.user_model.spec import ModelSpec, parse_model_spec

MODEL = """
import torch

def build_model():
    return torch.nn.Linear(8, 1)

def make_batch(batch_size):
    return (torch.randn(batch_size, 8),)

def compute_loss(model, batch):
    return model(*batch).square().mean()
"""
EVAL = "\ndef build_eval_dataset(held_out=27):\n    return {}\n"


def spec_of(folder: Path, returned: str | None, **params: int) -> ModelSpec:
    file = folder / "net.py"
    file.write_text(MODEL if returned is None else MODEL + EVAL.format(returned))
    return parse_model_spec(str(file), params=params)


def test_they_are_counted_with_the_params_of_the_file(tmp_path: Path) -> None:
    assert counted(spec_of(tmp_path, "range(held_out)")) == EvalSamples(27)
    assert counted(spec_of(tmp_path, "range(held_out)", held_out=5)) == EvalSamples(5)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "net.py has no build_eval_dataset()"),
        ("iter([1])", "which has no length"),
        ("[]", "which has no length"),
    ],
)
def test_it_is_said_why_they_are_not_known(tmp_path: Path, returned: str | None, said: str) -> None:
    found = counted(spec_of(tmp_path, returned))
    assert found.count is None and said in (found.why_not or "")


@pytest.mark.usefixtures("own_trace_processes")
def test_data_that_are_not_on_this_machine_are_no_error(tmp_path: Path) -> None:
    found = count_eval_samples(spec_of(tmp_path, "open('/nowhere/at/all')"))
    assert found.count is None and "it failed here (net.py:" in (found.why_not or "")
    assert count_eval_samples(spec_of(tmp_path, "range(9)")) == EvalSamples(9)
