"""Answers of a project's experiments are searched once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.api.projects import runs
from gpuplan.launcher.store.estimates import Store

MODEL = """
import torch
def build_model(width: int = 64):
    return torch.nn.Linear(width, width)
def make_batch(batch_size: int = 8, width: int = 64):
    return (torch.randn(batch_size, width),)
def compute_loss(model, batch):
    return model(*batch).square().mean()
"""
PROJECT = """
name: study
start: 2027-01
months: 2
experiments:
  a: {model: model.py, samples: 1B, global_batch: 4096, accelerator: "A100-40GB-SXM:8"}
  again: {model: model.py, samples: 1B, global_batch: 4096, accelerator: "A100-40GB-SXM:8"}
"""


@pytest.mark.slow
def test_an_experiment_that_stays_as_it_was_is_not_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gpuplan.yaml"
    file.write_text(PROJECT)
    (tmp_path / "model.py").write_text(MODEL)
    searched: list[object] = []
    estimate = runs.estimate

    def counted(read, question):
        searched.append(question)
        return estimate(read, question)

    monkeypatch.setattr(runs, "estimate", counted)
    first = api.report(file)
    assert len(searched) == 1  # The two experiments ask the same.
    again = api.report(file)
    assert len(searched) == 1
    assert again.model_copy(update={"generated_at": ""}) == first.model_copy(
        update={"generated_at": ""}
    )
    # Another amount of work, another model, another store: each is asked anew.
    file.write_text(PROJECT.replace("1B", "2B"))
    api.report(file)
    assert len(searched) == 2
    (tmp_path / "model.py").write_text(MODEL.replace("64", "128"))
    api.report(file)
    assert len(searched) == 3
    Store().path.unlink()
    api.report(file)
    assert len(searched) == 4
