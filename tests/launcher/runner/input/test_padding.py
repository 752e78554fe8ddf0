"""Labels that are left out in other numbers are said where micro-batches count the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from runner_jobs import make_job, plan_of, run

from gpuplan.launcher.runner.input import padding
from gpuplan.launcher.runner.input.padding import padding_words
from gpuplan.launcher.runner.job import execution_of

PADDED = {
    "ids": torch.ones(2, 4, dtype=torch.long),
    "labels": torch.tensor([[5, 6, 7, 8], [5, -100, -100, -100]]),
}
EQUAL = {"labels": torch.tensor([[5, 6, 7, -100], [5, 6, 8, -100]])}
NUMBERS = {"x": torch.tensor([[-100.0, 2.0], [1.0, 2.0]])}


@pytest.mark.parametrize(
    ("batch", "layout", "accum", "weighted", "is_said"),
    [
        (PADDED, {"data": 2}, 1, False, True),
        (PADDED, {}, 2, False, True),
        (PADDED, {}, 1, False, False),
        (PADDED, {"data": 2}, 2, True, False),
        (EQUAL, {"data": 2}, 1, False, False),
        (NUMBERS, {"data": 2}, 1, False, False),
        (tuple(PADDED.values()), {"data": 2}, 1, False, True),
    ],
)
def test_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
    batch: Any,
    layout: dict[str, int],
    accum: int,
    weighted: bool,
    is_said: bool,
) -> None:
    found = (lambda _batch: 1) if weighted else None
    monkeypatch.setattr(padding, "optional_function", lambda _workload, _name: found)
    workload: Any = SimpleNamespace()

    words = padding_words(workload, execution_of(plan_of(layout, grad_accum=accum)), [batch])

    assert (words is not None) == is_said
    if words is not None:
        assert "the 2 micro-batches of a step" in words and "loss_weight(batch)" in words


MODEL = """
import torch


def build_model():
    return torch.nn.Embedding(4, 4)


def make_batch(batch_size=2):
    return torch.ones(batch_size, 2, dtype=torch.long), torch.ones(batch_size, 2, dtype=torch.long)


def compute_loss(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def build_dataset():
    labels = torch.ones(8, 2, dtype=torch.long)
    labels[:5, 1:] = -100  # A step takes six of eight: some of both.
    return torch.utils.data.TensorDataset(torch.ones(8, 2, dtype=torch.long), labels)
"""


def test_a_run_says_it_once(tmp_path: Path) -> None:
    model = tmp_path / "net.py"
    model.write_text(MODEL)
    plan = plan_of(grad_accum=3)

    done = run(make_job(tmp_path / "run", model, plan=plan, steps=2, workers=0))

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("have other numbers of labels that are not -100") == 1
