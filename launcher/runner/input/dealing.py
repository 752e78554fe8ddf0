"""Whether a stream deals its own samples to ranks and workers, found out by reading it.

torch's documentation lets an IterableDataset take its part by `get_worker_info()`; WebDataset does
so too, and Hugging Face's `split_dataset_by_node` takes the rank's. What such a stream gives is a
part already; any other gives all of its samples to whoever reads it. So its first samples are read
as each worker and each rank would read them: where they are others, the stream deals itself.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_flatten
from torch.utils.data import get_worker_info
from torch.utils.data._utils import worker as loader_worker

from ....catalog.errors import UserFileError
from .samples import Share, mixed_seed, seed_everything

ATTRIBUTE = "deals_to"
"""Of a stream: to whom it deals itself, for one that cannot be read twice."""
WORKERS, RANKS = "workers", "ranks"
PROBED = 4
"""Samples that are compared."""


@dataclass(frozen=True)
class Dealing:
    """To whom a stream deals its samples by itself."""

    over_workers: bool = False
    over_ranks: bool = False


def dealing_of(
    build_dataset: Callable[[], Any],
    dataset: Any,
    share: Share,
    *,
    seed: int,
    workers: int,
    group: dist.ProcessGroup | None,
) -> Dealing:
    """Return to whom a stream deals itself, the same on every rank.

    Args:
        build_dataset: makes the stream anew, so that reading some of it takes nothing away.
        dataset: the stream.
        share: of this rank.
        seed: of the run.
        workers: that read for each rank.
        group: of all ranks, for words; None for one process.

    Raises:
        UserFileError: it gives others each time it is read, or some reader nothing, or each rank
            others though several ranks must read the same.
    """
    world = 1 if group is None else dist.get_world_size(group)
    if workers < 2 and world == 1:
        return Dealing()
    said = getattr(dataset, ATTRIBUTE, None)
    if said is not None:
        found = _stated(said)
    else:
        found = _found(build_dataset, seed=seed, workers=workers, group=group)
    if found.over_ranks and world != share.data:
        raise UserFileError(
            "build_dataset() returned a stream that gives every rank other samples, and under this"
            f" layout {world // share.data} ranks must train on the same ones.",
            fix="return the whole stream: gpuplan deals it to the ranks.",
        )
    return found


@contextmanager
def acting_as_worker(worker: int, workers: int, seed: int) -> Iterator[None]:
    """Let `get_worker_info()` say inside that this is a worker of a loader."""
    kept = get_worker_info()
    nothing: Any = None
    loader_worker._worker_info = loader_worker.WorkerInfo(
        id=worker, num_workers=workers, seed=seed, dataset=nothing
    )
    try:
        yield
    finally:
        loader_worker._worker_info = kept


def _stated(said: Any) -> Dealing:
    names = (said,) if isinstance(said, str) else tuple(said)
    if not set(names) <= {WORKERS, RANKS}:
        raise UserFileError(
            f"{ATTRIBUTE} of the data set is {said!r}.",
            fix=f'write {ATTRIBUTE} = (), ("workers",), ("ranks",) or ("workers", "ranks").',
        )
    return Dealing(over_workers=WORKERS in names, over_ranks=RANKS in names)


def _found(
    build_dataset: Callable[[], Any], *, seed: int, workers: int, group: dist.ProcessGroup | None
) -> Dealing:
    def first(worker: int, count: int) -> tuple[str, ...]:
        seed_everything(mixed_seed(seed, 0, 0))
        with acting_as_worker(worker, count, seed):
            return tuple(digest(one) for one in islice(iter(build_dataset()), PROBED))

    with torch.random.fork_rng(devices=()):
        whole, again = first(0, 1), first(0, 1)
        by_worker = [first(one, workers) for one in range(workers)] if workers > 1 else []
    by_rank: list[Any] = [whole]
    if group is not None:
        by_rank = [None] * dist.get_world_size(group)
        dist.all_gather_object(by_rank, whole, group)
    if whole != again:
        raise UserFileError(
            "build_dataset() returned a stream that gives other samples each time it is read, so"
            " that several readers cannot share it.",
            fix="draw its order from torch's, numpy's or Python's own random numbers, which gpuplan"
            f' seeds; or say to whom it deals itself: {ATTRIBUTE} = ("workers", "ranks") or ().',
        )
    if not any(by_worker) and not any(by_rank):
        raise UserFileError(
            "build_dataset() returned a stream that has no sample.",
            fix="look at what it reads: a folder or a filter that leaves nothing, for one.",
        )
    if not all(by_worker) or not all(by_rank):
        raise UserFileError(
            "build_dataset() returned a stream that gives no sample to some of its readers"
            f" (ranks: {len(by_rank)}, workers of each: {workers}): it has fewer parts than"
            " readers.",
            fix="give it more parts (shards), or fewer --workers.",
        )
    return Dealing(over_workers=len(set(by_worker)) > 1, over_ranks=len(set(by_rank)) > 1)


def digest(sample: Any) -> str:
    """Return what is equal for equal samples."""
    found = hashlib.blake2b(digest_size=16)
    leaves, form = tree_flatten(sample)
    found.update(repr(form).encode())
    for leaf in leaves:
        value: Any = leaf
        if isinstance(leaf, torch.Tensor):
            value = leaf.detach().cpu().reshape(-1).view(torch.uint8).numpy()
        found.update(value.tobytes() if hasattr(value, "tobytes") else _pickled(value))
    return found.hexdigest()


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except (TypeError, AttributeError, pickle.PicklingError):
        return type(value).__qualname__.encode()
