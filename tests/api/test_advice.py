"""What `api.advise` says of the setting that it is given."""

from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.launcher.store.sourced_plan import SourcedPlan

MODEL = """
import torch

def build_model():
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))

def make_batch(batch_size):
    return (torch.randn(batch_size, 64),)

def compute_loss(model, batch):
    return model(*batch).square().mean()
"""


@pytest.mark.parametrize("parameters", [8320, 1_100_048_384])
def test_a_plan_of_another_model_is_named(tmp_path: Path, parameters: int) -> None:
    """It was advised upon as if it were this model's, without a word."""
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    inputs = api.read_inputs(api.model(path))
    machine = api.Machine(accelerators=("T4",), providers=("aws",))
    found = api.estimate(inputs, api.Question(machine=machine, work=api.Work(samples=1e6)))
    facts = {"name": "decoder", "parameters": parameters}
    other = found.model_copy(update={"workload": found.workload.model_copy(update=facts)})
    advice = api.advise(inputs, SourcedPlan(plan=found.plans[0], estimate=other))
    named = [note for note in advice.notes if "was made for decoder (1.10B parameters)" in note]
    assert bool(named) == (parameters != 8320)
    assert not api.advise(inputs, found.plans[0]).notes
