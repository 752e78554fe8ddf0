"""The micro-batches of a rank: from the user's data set, or synthetic.

What a step trains on depends only on the seed and the step: samples [step · G, (step + 1) · G) of a
shuffled order, G being the global batch size, dealt to micro-batches and those to ranks. So a run
that continues, on any number of devices with the same G, sees exactly what it would have seen.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from ...catalog.errors import UserFileError
from ...profiles.checks import Batch, checked_batch, described
from ...profiles.contract import Workload
from .job import Execution

SYNTHETIC_BATCHES = 8
"""How many different synthetic micro-batches there are; each rank keeps those it uses."""
MOST_WORKERS = 4
PREFETCHED = 2


@dataclass(frozen=True, kw_only=True)
class Share:
    """Which samples a data-parallel rank takes of every step."""

    rank: int
    micro_batch: int
    grad_accum: int
    data: int

    @classmethod
    def of(cls, execution: Execution, rank: int) -> Share:
        """Return the share of a data-parallel rank."""
        return cls(
            rank=rank,
            micro_batch=execution.micro_batch,
            grad_accum=execution.grad_accum,
            data=execution.layout.data,
        )

    @property
    def global_batch(self) -> int:
        """Return the samples of one step of all ranks."""
        return self.micro_batch * self.grad_accum * self.data

    def micro_batches(self, step: int) -> Iterator[int]:
        """Yield the numbers, over the whole run, of this rank's micro-batches of a step."""
        first = step * self.grad_accum * self.data
        for turn in range(self.grad_accum):
            yield first + turn * self.data + self.rank


class Batches(Protocol):
    """Gives the micro-batches of one step after the other."""

    waited_s: float
    """Of the last step: how long the processor waited for data."""

    def step(self) -> list[Batch]:
        """Return the micro-batches of the next step, on the device."""
        ...


class SyntheticBatches:
    """What `make_batch` gives, the same for the same micro-batch of a run."""

    def __init__(
        self, workload: Workload, share: Share, device: torch.device, *, seed: int, start: int
    ) -> None:
        self.waited_s = 0.0
        self._workload = workload
        self._share = share
        self._device = device
        self._seed = seed
        self._step = start
        self._made: dict[int, Batch] = {}

    def step(self) -> list[Batch]:
        """Return the micro-batches of the next step, on the device."""
        started_s = time.perf_counter()
        numbers = [one % SYNTHETIC_BATCHES for one in self._share.micro_batches(self._step)]
        batches = [self._batch(one) for one in numbers]
        self._step += 1
        self.waited_s = time.perf_counter() - started_s
        return batches

    def _batch(self, number: int) -> Batch:
        if number not in self._made:
            with torch.random.fork_rng(devices=()):
                torch.manual_seed(self._seed + 1 + number)
                batch = self._workload.make_batch(self._share.micro_batch)
            self._made[number] = on_device(batch, self._device)
        return self._made[number]


class DatasetBatches:
    """The samples of the user's data set, read ahead by worker processes."""

    def __init__(
        self,
        dataset: Any,
        share: Share,
        device: torch.device,
        *,
        seed: int,
        start: int,
        workers: int,
    ) -> None:
        self.waited_s = 0.0
        self._share = share
        self._device = device
        loader: DataLoader[Any] = DataLoader(
            Seeded(dataset, seed) if _has_places(dataset) else Dealt(dataset, share, start),
            batch_size=share.micro_batch,
            sampler=_sampler(dataset, share, seed, start),
            num_workers=workers,
            prefetch_factor=PREFETCHED if workers else None,
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
            drop_last=True,
            collate_fn=getattr(dataset, "collate_fn", None),
        )
        self._batches = iter(loader)

    def step(self) -> list[Batch]:
        """Return the micro-batches of the next step, on the device."""
        self.waited_s = 0.0
        return [self._next() for _ in range(self._share.grad_accum)]

    def _next(self) -> Batch:
        started_s = time.perf_counter()
        try:
            found = next(self._batches)
        except StopIteration:
            raise UserFileError(
                f"build_dataset() returned a data set with fewer samples than one step takes"
                f" ({self._share.global_batch}).",
                fix="give it more samples, or take a smaller global batch.",
            ) from None
        finally:
            self.waited_s += time.perf_counter() - started_s
        batch = tuple(found) if isinstance(found, list) else found
        return on_device(checked_batch(batch, "the data set"), self._device)


def open_batches(
    workload: Workload,
    share: Share,
    device: torch.device,
    *,
    seed: int,
    start: int,
    workers: int | None,
    synthetic: bool,
) -> Batches:
    """Return the micro-batches of a run from a step on.

    Raises:
        UserFileError: build_dataset() gives no data set, or one with too few samples.
    """
    if workload.build_dataset is None or synthetic:
        return SyntheticBatches(workload, share, device, seed=seed, start=start)
    dataset = workload.build_dataset()
    if not isinstance(dataset, Dataset) and not hasattr(dataset, "__getitem__"):
        raise UserFileError(
            f"build_dataset() returned {described(dataset)}, not a data set.",
            fix="return a torch.utils.data.Dataset or IterableDataset.",
        )
    count = default_workers() if workers is None else workers
    return DatasetBatches(dataset, share, device, seed=seed, start=start, workers=count)


class StepOrder(Sampler[int]):
    """The samples of one rank, shuffled epoch after epoch; what a step takes does not depend on it.

    The last samples of an epoch that fill no global batch are left out, as DistributedSampler with
    `drop_last` does; every epoch has another order, so they are others each time.
    """

    def __init__(self, size: int, share: Share, seed: int, start: int) -> None:
        self._size = size
        self._share = share
        self._seed = seed
        self._start = start
        self._steps_per_epoch = size // share.global_batch
        if not self._steps_per_epoch:
            raise UserFileError(
                f"build_dataset() returned {size:,} samples, and one step takes"
                f" {share.global_batch:,}.",
                fix="give it more samples, or take a smaller global batch.",
            )

    def __iter__(self) -> Iterator[int]:
        """Yield the places of samples without end."""
        share, step = self._share, self._start
        order, epoch = torch.empty(0), -1
        while True:
            if step // self._steps_per_epoch != epoch:
                epoch = step // self._steps_per_epoch
                order = torch.randperm(
                    self._size, generator=torch.Generator().manual_seed(self._seed + epoch)
                )
            first = (step % self._steps_per_epoch) * share.global_batch
            for number in share.micro_batches(0):
                begin = first + number * share.micro_batch
                yield from order[begin : begin + share.micro_batch].tolist()
            step += 1


class Seeded(Dataset[Any]):
    """A data set whose random augmentations depend on the sample and the seed alone.

    So they are the same whichever worker reads the sample, and after a run continues.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset = dataset
        self._seed = seed

    def __getitem__(self, place: int) -> Any:
        """Return a sample, read with random numbers of its own."""
        seed_everything(self._seed * 1_000_003 + place)
        return self._dataset[place]


class Dealt(IterableDataset[Any]):
    """A stream dealt out: every rank and every worker takes its own micro-batches of it.

    A stream cannot be shuffled or entered in the middle: what was trained on already is read again
    and dropped. When it ends it begins anew.
    """

    def __init__(self, dataset: Any, share: Share, start: int) -> None:
        self._dataset = dataset
        self._share = share
        self._start = start

    def __iter__(self) -> Iterator[Any]:
        """Yield this rank's samples without end."""
        share = self._share
        info = torch.utils.data.get_worker_info()
        workers, worker = (info.num_workers, info.id) if info else (1, 0)
        skipped = self._start * share.global_batch
        place = 0
        while True:
            before = place
            for sample in self._dataset:
                number, place = place // share.micro_batch, place + 1
                if place <= skipped or number % share.data != share.rank:
                    continue
                # Loaders take their workers' batches in turn.
                turn = number // share.data - self._start * share.grad_accum
                if turn % workers == worker:
                    yield sample
            if place == before:
                return


def seed_everything(seed: int) -> None:
    """Set every random source that user code may read: Python's, torch's, and numpy's if loaded."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def on_device(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on a device; floating-point values keep their dtype."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: on_device(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple) and not hasattr(batch, "_fields"):
        return type(batch)(on_device(value, device) for value in batch)
    move = getattr(batch, "to", None)
    return batch if move is None else move(device)


def default_workers() -> int:
    """Return how many worker processes a rank reads data with: its cores but one, at most 4."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(0, min(MOST_WORKERS, len(os.sched_getaffinity(0)) // ranks - 1))


def _has_places(dataset: Any) -> bool:
    return hasattr(dataset, "__len__") and not isinstance(dataset, IterableDataset)


def _sampler(dataset: Any, share: Share, seed: int, start: int) -> Sampler[int] | None:
    return StepOrder(len(dataset), share, seed, start) if _has_places(dataset) else None
