"""A data set is told the epoch and the step where its samples are read, in workers too."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, random_split

from gpuplan.catalog.errors import UserFileError
from gpuplan.launcher.runner.input.batches import open_batches
from gpuplan.launcher.runner.input.samples import Share

CPU = torch.device("cpu")
SHARE = Share(rank=0, micro_batch=2, grad_accum=2, data=1)
PER_STEP = 4
SIZE = 20


class Curriculum(Dataset[torch.Tensor]):
    """Its samples are the epoch, the step, and what is drawn as the epoch begins."""

    def __init__(self) -> None:
        self.epoch = self.step = -1
        self.drawn = 0.0

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, place: int) -> torch.Tensor:
        return torch.tensor([self.epoch, self.step, self.drawn])

    def set_epoch(self, epoch: int) -> None:
        self.epoch, self.drawn = epoch, random.random()

    def set_step(self, step: int) -> None:
        self.step = step


class Stream(IterableDataset[torch.Tensor]):
    """Its order is that of the pass, as of Hugging Face's streams that are shuffled."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[torch.Tensor]:
        order = random.Random(self.epoch).sample(range(SIZE), SIZE)
        return iter(torch.tensor([float(self.epoch), float(one)]) for one in order)


def rows(
    dataset: Callable[[], Any], steps: int, *, start: int = 0, workers: int = 0
) -> list[list[Any]]:
    """Return the samples of each step."""
    workload: Any = SimpleNamespace(build_dataset=dataset)
    batches = open_batches(
        workload, SHARE, CPU, seed=3, start=start, workers=workers, synthetic=False
    )
    found: list[list[Any]] = []
    for _ in range(steps):
        step: Any = batches.step()
        found.append([row for batch in step for row in batch[0].tolist()])
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_a_curriculum_goes_by_the_step_of_its_samples(workers: int) -> None:
    found = rows(Curriculum, 12, workers=workers)

    for step, samples in enumerate(found):
        assert len(samples) == PER_STEP
        assert all(one[:2] == [step // (SIZE // PER_STEP), step] for one in samples)
    drawn = [{one[2] for one in samples} for samples in found]
    assert all(len(one) == 1 for one in drawn), "workers drew other numbers for one epoch"
    assert len(set.union(*drawn)) == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_it_continues_exactly(workers: int) -> None:
    assert rows(Curriculum, 4, start=7, workers=workers) == rows(Curriculum, 11)[7:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_is_told_its_pass(workers: int) -> None:
    found = sum(rows(Stream, 10, workers=workers), [])

    first, second = found[:SIZE], found[SIZE:]
    assert {one[0] for one in first} == {0.0} and {one[0] for one in second} == {1.0}
    assert [one[1] for one in first] != [one[1] for one in second]
    for samples in (first, second):
        assert sorted(one[1] for one in samples) == list(map(float, range(SIZE)))
    assert sum(rows(Stream, 3, start=6, workers=workers), []) == found[24:36]


class Padded(Curriculum):
    """Put together in a way of its own."""

    @staticmethod
    def collate_fn(samples: list[torch.Tensor]) -> torch.Tensor:
        return -torch.stack(samples)


def part() -> Dataset[Any]:
    whole = Padded()
    return random_split(random_split(whole, [SIZE, 0])[0], [SIZE // 2, SIZE // 2])[0]


def test_a_part_of_a_data_set_is_read_as_the_whole_would_be() -> None:
    found = rows(part, 4)

    assert [one[0][:2] for one in found] == [[-0.0, -0.0], [-0.0, -1.0], [-1.0, -2.0], [-1.0, -3.0]]


def test_a_loader_is_refused_with_what_to_return() -> None:
    def loader() -> Any:
        return torch.utils.data.DataLoader(Curriculum())

    with pytest.raises(UserFileError) as refused:
        rows(loader, 1)
    assert "of a DataLoader its data set" in str(refused.value.fix)
