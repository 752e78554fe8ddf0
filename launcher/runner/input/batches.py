"""The micro-batches of a rank: from the user's data set, or synthetic.

What a step trains on depends only on the seed and the step: samples [step · G, (step + 1) · G) of a
shuffled order, G being the global batch size, dealt to micro-batches and those to ranks. So a run
that continues, on any number of devices with the same G, sees exactly what it would have seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from ....catalog.errors import UserFileError
from ....profiles.user_model.checks import Batch, checked_batch, described
from ....profiles.user_model.placing import placed
from ....profiles.user_model.workload import Workload
from .dealing import dealing_of
from .reader_processes import apart, holding_stops
from .samples import Place, Seeded, Share, StepOrder, of_dataset, seed_everything
from .streams import Dealt, WithReading, continued
from .worker_copies import WorkerCopies, may_change

SYNTHETIC_BATCHES = 8
"""How many different synthetic micro-batches there are; each rank keeps those it uses."""
MOST_WORKERS = 4
PREFETCHED = 2


class Batches(Protocol):
    """Gives the micro-batches of one step after the other."""

    waited_s: float
    """How long the processor waited for the data of the last step."""
    samples: int | None
    """Of one epoch; None where there are no epochs, or nobody knows their length."""
    may_end: bool
    """Whether there may be no next step, on this rank earlier than on others."""
    passes: int
    """How often a stream was read to its end."""

    def step(self) -> list[Batch] | None:
        """Return the micro-batches of the next step, on the device; None where the data ended."""
        ...

    def readings(self) -> dict[int, bytes]:
        """Return how far each worker has read a stream, for those that were handed out."""
        ...


class SyntheticBatches:
    """What `make_batch` gives, the same for the same micro-batch of a run."""

    def __init__(
        self,
        workload: Workload,
        share: Share,
        device: torch.device,
        *,
        dtype: torch.dtype | None = None,
        seed: int,
        start: int,
    ) -> None:
        self.waited_s = 0.0
        self.samples: int | None = None
        self.may_end, self.passes = False, 0
        self._workload = workload
        self._share = share
        self._device = device
        self._dtype = dtype
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

    def readings(self) -> dict[int, bytes]:
        """Return nothing: what is made does not depend on what was made before."""
        return {}

    def _batch(self, number: int) -> Batch:
        if number not in self._made:
            with torch.random.fork_rng(devices=()):
                torch.manual_seed(self._seed + 1 + number)
                batch = self._workload.make_batch(self._share.micro_batch)
            self._made[number] = placed(batch, self._device, self._dtype)
        return self._made[number]


class DatasetBatches:
    """The samples of the user's data set, read ahead by worker processes."""

    def __init__(
        self,
        dataset: Any,
        share: Share,
        device: torch.device,
        *,
        dtype: torch.dtype | None = None,
        sampler: Sampler[Place] | None,
        workers: int,
        copies: WorkerCopies | None = None,
    ) -> None:
        """Open a loader.

        Args:
            dataset: `Seeded` or `Dealt`, around the user's own.
            share: of this rank.
            device: where batches are put.
            dtype: of floating-point tensors; None keeps theirs.
            sampler: the places of samples; None for a stream.
            workers: processes that read.
            copies: told the first micro-batch of every step; None: nobody is.
        """
        self.waited_s = 0.0
        self._copies = copies
        self._share = share
        self._device = device
        self._dtype = dtype
        self._readings: dict[int, bytes] = {}
        self.dataset = dataset
        self.samples: int | None = len(dataset.of_user) if sampler is not None else None
        self.may_end, self.passes = isinstance(dataset, Dealt), 0
        collate = of_dataset(dataset.of_user, "collate_fn")
        loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_size=share.micro_batch,
            sampler=sampler,  # pyright: ignore[reportArgumentType]
            num_workers=workers,
            prefetch_factor=PREFETCHED if workers else None,
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
            drop_last=True,
            collate_fn=WithReading(dataset, collate) if self.may_end else collate,
            worker_init_fn=apart,
        )
        with holding_stops():
            self._batches = iter(loader)
        for _ in range(dataset.dropped if isinstance(dataset, Dealt) else 0):
            next(self._batches, None)

    def step(self) -> list[Batch] | None:
        """Return the micro-batches of the next step, on the device; None where the data ended."""
        self.waited_s = 0.0
        batches: list[Batch] = []
        for turn in range(self._share.grad_accum):
            batch = self._next(self._copies if turn == 0 else None)
            if batch is None:
                return None
            batches.append(batch)
        return batches

    def readings(self) -> dict[int, bytes]:
        """Return how far each worker has read a stream, for those that were handed out."""
        return dict(self._readings)

    def _next(self, copies: WorkerCopies | None) -> Batch | None:
        started_s = time.perf_counter()
        found = next(self._batches, None)
        self.waited_s += time.perf_counter() - started_s
        if found is None:
            return None
        if self.may_end:
            found, told = found
            self.passes = max(self.passes, told.passes)
            if told.reading is not None:
                self._readings[told.worker] = told.reading
        if copies is not None:
            copies.look(found, self._share.micro_batch)
        batch = tuple(found) if isinstance(found, list) else found
        return placed(checked_batch(batch, "the data set"), self._device, self._dtype)


def open_batches(
    workload: Workload,
    share: Share,
    device: torch.device,
    *,
    dtype: torch.dtype | None = None,
    seed: int,
    start: int,
    workers: int | None,
    synthetic: bool,
    group: dist.ProcessGroup | None = None,
    saved: Mapping[int, Mapping[int, bytes]] | None = None,
    is_first: bool = False,
) -> Batches:
    """Return the micro-batches of a run from a step on.

    Args:
        workload: its data set, else its `make_batch`.
        share: which samples this rank takes.
        device: where they are put.
        dtype: of floating-point tensors; None keeps theirs.
        seed: of the order, of augmentations and of synthetic values.
        start: the first step.
        workers: processes that read; None: as many as the cores allow.
        synthetic: whether to leave the data set aside.
        group: of all ranks, for words; None for one process.
        saved: by data rank and worker, how far a stream was read before that step, as `readings()`
            told it; None where nothing was kept.
        is_first: whether this process speaks for all.

    Raises:
        UserFileError: build_dataset() gives no data set, or one with too few samples.
    """
    if workload.build_dataset is None or synthetic:
        return SyntheticBatches(workload, share, device, dtype=dtype, seed=seed, start=start)
    # Whatever it draws (a split, an order) is the same on all ranks, and after a run continues.
    seed_everything(seed)
    dataset = workload.build_dataset()
    if not isinstance(dataset, Dataset) and not hasattr(dataset, "__getitem__"):
        raise UserFileError(
            f"build_dataset() returned {described(dataset)}, not a data set.",
            fix="return a torch.utils.data.Dataset or IterableDataset; of a DataLoader its data"
            " set, with its collate_fn as an attribute: gpuplan's own loader reads it.",
        )
    count = default_workers() if workers is None else workers
    how: dict[str, Any] = {"dtype": dtype, "workers": count}
    if has_places(dataset):
        in_order = getattr(dataset, "in_order", False)
        size = len(dataset)  # pyright: ignore[reportArgumentType]
        order = StepOrder(size, share, seed, start, in_order=in_order)
        seeded = Seeded(dataset, seed)
        if is_first and count > 0 and may_change(workload):
            how["copies"] = WorkerCopies(seeded, order, of_dataset(dataset, "collate_fn"))
        return DatasetBatches(seeded, share, device, sampler=order, **how)
    dealing = dealing_of(
        workload.build_dataset, dataset, share, seed=seed, workers=count, group=group
    )
    readers = max(1, count)
    stream = Dealt(
        dataset,
        share,
        start,
        dealing=dealing,
        seed=seed,
        workers=readers,
        readings=continued(saved or {}, share, start, dealing, readers),
    )
    return DatasetBatches(stream, share, device, sampler=None, **how)


def default_workers() -> int:
    """Return how many worker processes a rank reads data with: its cores but one, at most 4."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(0, min(MOST_WORKERS, _cores() // ranks - 1))


def _cores() -> int:
    """Return how many processor cores this process may use; macOS tells those of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_places(dataset: Any) -> bool:
    """Return whether samples are read by their place; else the data set is a stream."""
    return hasattr(dataset, "__len__") and not isinstance(dataset, IterableDataset)
