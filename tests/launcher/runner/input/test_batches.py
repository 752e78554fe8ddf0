"""Which samples a rank trains on depends on the seed and the step alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset

from gpuplan.catalog.errors import UserFileError
from gpuplan.launcher.runner.input.batches import SyntheticBatches, default_workers, open_batches
from gpuplan.launcher.runner.input.samples import Share, StepOrder
from gpuplan.launcher.runner.input.streams import Dealt

CPU = torch.device("cpu")
counts = st.integers(1, 4)


def shares(micro_batch: int, grad_accum: int, data: int) -> list[Share]:
    return [
        Share(rank=rank, micro_batch=micro_batch, grad_accum=grad_accum, data=data)
        for rank in range(data)
    ]


def samples_of_step(size: int, share: Share, step: int, seed: int = 0) -> list[int]:
    order = StepOrder(size, share, seed, step)
    return [one.index for one in islice(iter(order), share.micro_batch * share.grad_accum)]


@given(micro_batch=counts, grad_accum=counts, data=counts, step=st.integers(0, 40))
def test_ranks_share_a_step_without_overlap(
    micro_batch: int, grad_accum: int, data: int, step: int
) -> None:
    size = 3 * micro_batch * grad_accum * data + 1
    taken = [samples_of_step(size, one, step) for one in shares(micro_batch, grad_accum, data)]
    together = sum(taken, [])

    assert len(set(together)) == len(together) == micro_batch * grad_accum * data


@given(micro_batch=counts, grad_accum=counts, data=counts, step=st.integers(0, 40))
def test_a_step_takes_the_same_samples_however_it_is_dealt(
    micro_batch: int, grad_accum: int, data: int, step: int
) -> None:
    size = 5 * micro_batch * grad_accum * data
    (alone,) = shares(micro_batch, grad_accum * data, 1)
    dealt = [samples_of_step(size, one, step) for one in shares(micro_batch, grad_accum, data)]

    assert sorted(sum(dealt, [])) == sorted(samples_of_step(size, alone, step))


@given(step=st.integers(0, 30))
def test_entering_in_the_middle_is_going_there(step: int) -> None:
    (share,) = shares(2, 2, 1)
    through = list(islice(iter(StepOrder(11, share, 0, 0)), 4 * (step + 1)))

    assert through[-4:] == list(islice(iter(StepOrder(11, share, 0, step)), 4))


def test_epochs_are_shuffled_differently_and_seen_whole() -> None:
    (share,) = shares(2, 1, 1)
    first, second = (
        sum((samples_of_step(8, share, epoch * 4 + step) for step in range(4)), [])
        for epoch in (0, 1)
    )

    assert sorted(first) == sorted(second) == list(range(8))
    assert first != second


def test_too_few_samples_are_named() -> None:
    (share,) = shares(4, 2, 1)
    with pytest.raises(UserFileError, match="7 samples, and one step takes 8"):
        StepOrder(7, share, 0, 0)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(100))


def test_a_stream_is_dealt_by_micro_batches_and_continued() -> None:
    ranks = shares(2, 2, 2)
    begun = [list(islice(iter(Dealt(Stream(), one, 0)), 8)) for one in ranks]
    continued = [list(islice(iter(Dealt(Stream(), one, 1)), 4)) for one in ranks]

    assert begun[0][:4] == [0, 1, 4, 5] and begun[1][:4] == [2, 3, 6, 7]
    assert continued == [begun[0][4:], begun[1][4:]]


def test_a_stream_begins_anew_when_it_ends() -> None:
    (share,) = shares(2, 1, 1)
    assert list(islice(iter(Dealt(Stream(), share, 0)), 102))[-2:] == [0, 1]


class Noise(Dataset[torch.Tensor]):
    """Four samples, each read as its number and a random number, as augmented images are."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> torch.Tensor:
        return torch.stack([torch.tensor(float(place)), torch.rand(())])


def _noise_of_step(start: int, steps: int) -> list[dict[float, float]]:
    """Return, for each step from `start` on, which noise every sample was read with."""
    (share,) = shares(4, 1, 1)
    workload: Any = SimpleNamespace(build_dataset=Noise)
    batches = open_batches(workload, share, CPU, seed=1, start=start, workers=0, synthetic=False)
    read: list[Any] = [batches.step() for _ in range(steps)]
    return [dict(sample.tolist() for sample in one[0]) for (one,) in read]


def test_augmentation_is_another_in_every_epoch() -> None:
    first, second, third = _noise_of_step(0, 3)

    assert first.keys() == second.keys() == third.keys()
    assert all(len({first[one], second[one], third[one]}) == 3 for one in first)


def test_augmentation_continues_exactly() -> None:
    assert _noise_of_step(2, 1) == _noise_of_step(0, 3)[2:]


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_do_not_change_what_is_read(workers: int) -> None:
    class Places(Dataset[tuple[torch.Tensor, torch.Tensor]]):
        def __len__(self) -> int:
            return 12

        def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.tensor(float(place)), torch.rand(())

    share = shares(2, 2, 2)[1]
    found = [_values(Places, share, count) for count in (0, workers)]

    assert found[0] == found[1]


def test_synthetic_batches_are_the_same_for_the_same_micro_batch() -> None:
    workload: Any = SimpleNamespace(make_batch=lambda size: (torch.rand(size),))
    ranks = [SyntheticBatches(workload, one, CPU, seed=3, start=0) for one in shares(2, 1, 2)]
    (alone,) = [SyntheticBatches(workload, one, CPU, seed=3, start=0) for one in shares(2, 2, 1)]
    dealt = [one.step()[0][0] for one in ranks]  # pyright: ignore[reportArgumentType]
    made: list[Any] = alone.step()
    whole = [batch[0] for batch in made]

    assert all(torch.equal(a, b) for a, b in zip(dealt, whole, strict=True))


def _values(dataset: type, share: Share, workers: int) -> list[list[float]]:
    workload: Any = SimpleNamespace(build_dataset=dataset)
    batches = open_batches(workload, share, CPU, seed=1, start=0, workers=workers, synthetic=False)
    steps: list[Any] = [batches.step() for _ in range(3)]
    parts: list[Any] = [part for step in steps for batch in step for part in batch]
    return [part.tolist() for part in parts]


def test_workers_follow_the_cores_where_the_system_tells_no_affinity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As macOS does not: a run with a data set ended with a traceback there."""
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert default_workers() == 3
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert default_workers() == 0
