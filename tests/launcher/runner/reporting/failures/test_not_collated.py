"""Samples that make no batch are the file's fault, and the error says what makes one of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runner_jobs import make_job, plan_of, run

MODEL = """
import torch


def build_model():
    return torch.nn.Linear(1, 1)


def make_batch(batch_size=2):
    return torch.ones(batch_size, 1)


def compute_loss(model, batch):
    return model(batch).mean()


class Rows(torch.utils.data.Dataset):
    COLLATE

    def __len__(self):
        return 16

    def __getitem__(self, place):
        return torch.ones(1 + place % 3, 1)


def build_dataset():
    return Rows()
"""
OWN = """def collate_fn(self, rows):
        return torch.utils.data.default_collate(rows)
"""


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("", "The samples of net.py cannot be put together to a batch"),
        (OWN, "net.py:19"),
    ],
)
def test_it_is_named(tmp_path: Path, workers: int, own: str, message: str) -> None:
    model = tmp_path / "net.py"
    model.write_text(MODEL.replace("COLLATE", own))

    done = run(make_job(tmp_path / "run", model, plan=plan_of(), steps=1, workers=workers))

    assert done.returncode == 1
    told = str(json.loads((tmp_path / "run" / "failure.json").read_text()))
    assert message in told and "equal size" in told
    assert ("`collate_fn` attribute" in told) == (not own)
    assert "fault of gpuplan" not in told
