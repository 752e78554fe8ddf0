"""What a run trains on is said: real data or noise, how many samples and epochs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.runner.input.amount import amount_words
from gpuplan.launcher.runner.input.data_words import data_words, fixed_words, refuse_no_data

READ = torch.tensor([[3.0, 1.0, 4.0], [1.0, 5.0, 9.0]])
TURNS = count()


def test_a_node_refuses_what_the_text_of_a_file_could_not_tell() -> None:
    bare: Any = SimpleNamespace(name="net", path=None, build_dataset=None, loader=None, not_run=())
    refuse_no_data(bare, synthetic=True, needs_dataset=True)
    refuse_no_data(bare, synthetic=False, needs_dataset=False)
    with pytest.raises(UsageError, match="no build_dataset"):
        refuse_no_data(bare, synthetic=False, needs_dataset=True)
    assert data_words(bare, synthetic=False) == "synthetic batches: net has no build_dataset()"


def test_hooks_of_a_trainer_are_refused_and_a_loader_is_not() -> None:
    lit: Any = SimpleNamespace(
        name="lit", path=None, build_dataset=list, loader="train_dataloader()", not_run=()
    )
    refuse_no_data(lit, synthetic=False, needs_dataset=True)
    assert data_words(lit, synthetic=False).startswith("train_dataloader() of lit")
    lit.not_run = ("on_fit_start()",)
    with pytest.raises(UsageError, match=r"on_fit_start\(\)"):
        refuse_no_data(lit, synthetic=False, needs_dataset=False)


@pytest.mark.parametrize(
    "make_batch",
    [
        lambda size: (torch.randn(size, 3), torch.randint(10, (size,))),
        lambda size: (torch.zeros(size, 3), torch.ones(size)),
        lambda size: {"ids": torch.randint(9, (size, 4)), "places": torch.arange(4)[None]},
    ],
    ids=["noise", "constants", "noise and positions"],
)
def test_noise_is_not_taken_for_data(make_batch: Callable[[int], Any]) -> None:
    assert fixed_words(_workload(make_batch)) is None


@pytest.mark.parametrize(
    "make_batch",
    [lambda size: (READ[:size],), lambda size: (READ[:size] + next(TURNS),)],
    ids=["the same samples", "one after the other"],
)
def test_a_make_batch_that_reads_data_is_told_from_noise(
    make_batch: Callable[[int], Any],
) -> None:
    assert "make_batch() of net seems to read data" in (fixed_words(_workload(make_batch)) or "")


def test_steps_are_said_in_samples_and_epochs() -> None:
    assert amount_words(12, 8, 50) == "12 steps of 8 are 96 samples, 2 epochs of 50"
    assert amount_words(1000, 64, None) == "1,000 steps of 64 are 64,000 samples"


def _workload(make_batch: Callable[[int], Any]) -> Any:
    return SimpleNamespace(name="net", path=None, make_batch=make_batch)
