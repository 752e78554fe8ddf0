"""What nobody sells is a machine of the user's own, for every question that names it."""

from pathlib import Path

import pytest

import gpuplan
from gpuplan import api

FILE = """\
import torch
from torch import nn

def build_model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))

def make_batch(batch_size):
    return {"x": torch.zeros(batch_size, 64), "y": torch.zeros(batch_size, dtype=torch.long)}

def compute_loss(model, batch):
    return nn.functional.cross_entropy(model(batch["x"]), batch["y"])
"""
WORK = gpuplan.Work(samples=1e6)


@pytest.fixture(name="file")
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(FILE)
    return path


def test_an_estimate_says_how_long_it_takes_there(file: Path) -> None:
    machine = gpuplan.Machine(accelerators=("RTX-3090:4",))
    answer = api.estimate(file, gpuplan.Question(work=WORK, machine=machine))
    (plan,) = {plan.offer.instance_type for plan in answer.plans}
    assert plan == "4xRTX-3090"
    best = answer.best
    assert best is not None and best.job is not None
    assert best.job.hours > 0 and best.job.usd is None and best.offer.is_own
    assert answer.limits_text[-1] == "on demand", "no prices, and none of a date"


def test_advice_takes_it_as_todays_machine(file: Path) -> None:
    today = gpuplan.Question(
        work=gpuplan.Work(samples=1e6, global_batch=64),
        machine=gpuplan.Machine(accelerators=("RTX-3090:4",)),
    )
    answer = api.advise(file, today)
    assert answer.today.offer.instance_type == "4xRTX-3090"
    assert any("a machine of your own" in one for one in answer.assumed)


def test_which_device_is_meant_is_not_guessed(file: Path) -> None:
    machine = gpuplan.Machine(accelerators=("A100:7",))
    answer = api.estimate(file, gpuplan.Question(work=WORK, machine=machine))
    assert not answer.plans
