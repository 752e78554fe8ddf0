"""Workers that do not see what the file changes are named; others are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from runner_jobs import make_job, plan_of, run

MODEL = """
import random

import torch

STEP = 0


def build_model():
    return torch.nn.Linear(1, 1)


def make_batch(batch_size=2):
    return torch.ones(batch_size, 1)


def compute_loss(model, batch):
    batch = batch[0] if isinstance(batch, tuple) else batch
    return model(batch).square().mean()


class Rows(torch.utils.data.Dataset):
    step = 0

    def __len__(self):
        return 64

    def __getitem__(self, place):
        return torch.tensor([KIND])


class Told(Rows):
    def set_step(self, step):
        self.step = step


def build_dataset():
    return DATASET()


class Moving:
    def after_step(self, step):
        global STEP
        STEP = step

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def extra_state(model, optimizer):
    return Moving()
"""
WARNING = "which do not see what changes while it trains"


@pytest.mark.parametrize(
    ("kind", "dataset", "workers", "is_named"),
    [
        ("float(STEP)", "Rows", 1, True),
        ("float(STEP)", "Rows", 0, False),
        ("float(self.step)", "Told", 1, False),
        ("random.random()", "Rows", 1, False),
        ("float(random.SystemRandom().random())", "Rows", 1, False),
    ],
    ids=["a global", "a global here", "told", "seeded", "never the same"],
)
def test_they_are_named(
    tmp_path: Path, kind: str, dataset: str, workers: int, is_named: bool
) -> None:
    model = tmp_path / "net.py"
    model.write_text(MODEL.replace("KIND", kind).replace("DATASET", dataset))

    done = run(make_job(tmp_path / "run", model, plan=plan_of(), steps=4, workers=workers))

    assert done.returncode == 0, done.stderr
    assert done.stderr.count(WARNING) == is_named
