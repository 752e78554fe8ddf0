"""Which samples a rank takes of every step, and their random numbers.

Samples [step · G, (step + 1) · G) of a shuffled order, G being the global batch size, dealt to
micro-batches and those to ranks.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset, Sampler, Subset

from ....catalog.errors import UserFileError
from ..job import Execution

EPOCH, STEP = "set_epoch", "set_step"
"""Methods that a data set may have, by which it is told what its samples are read for."""


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


@dataclass(frozen=True, slots=True)
class Place:
    """One reading of a sample: where it stands in the data set, and what it is read for."""

    epoch: int
    index: int
    step: int | None = None
    """Counted from 0 over the run; None where it is for no step, as in an evaluation."""


class StepOrder(Sampler[Place]):
    """The samples of one rank, shuffled epoch after epoch; what a step takes does not depend on it.

    The last samples of an epoch that fill no global batch are left out, as DistributedSampler with
    `drop_last` does; every epoch has another order, so they are others each time.
    """

    def __init__(
        self, size: int, share: Share, seed: int, start: int, *, in_order: bool = False
    ) -> None:
        """Order the samples of a data set.

        Args:
            size: of the data set.
            share: of this rank.
            seed: of the order.
            start: the first step.
            in_order: whether samples come as they are numbered, as a file that shuffles none asks.
        """
        self._size = size
        self._in_order = in_order
        self._share = share
        self._seed = seed
        self._start = start
        self.steps_per_epoch = size // share.global_batch
        if not self.steps_per_epoch:
            raise UserFileError(
                f"build_dataset() returned {size:,} samples, and one step takes"
                f" {share.global_batch:,}.",
                fix="give it more samples, or take a smaller global batch.",
            )

    def __iter__(self) -> Iterator[Place]:
        """Yield the places of samples without end."""
        share, step = self._share, self._start
        order, epoch = torch.empty(0), -1
        while True:
            if step // self.steps_per_epoch != epoch:
                epoch = step // self.steps_per_epoch
                order = self._order(epoch)
            first = (step % self.steps_per_epoch) * share.global_batch
            for number in share.micro_batches(0):
                begin = first + number * share.micro_batch
                taken = order[begin : begin + share.micro_batch].tolist()
                yield from (Place(epoch, index, step) for index in taken)
            step += 1

    @property
    def per_step(self) -> int:
        """Return how many samples of a step are this rank's."""
        return self._share.micro_batch * self._share.grad_accum

    def _order(self, epoch: int) -> torch.Tensor:
        if self._in_order:
            return torch.arange(self._size)
        generator = torch.Generator().manual_seed(self._seed + epoch)
        return torch.randperm(self._size, generator=generator)


class Seeded(Dataset[Any]):
    """A data set whose random augmentations depend on the sample, the epoch and the seed alone.

    So they are the same whichever worker reads the sample, and after a run continues; and others in
    every epoch. A data set that goes by the epoch or the step is told it where the sample is read:
    a worker sees nothing of what the training process knows, and reads ahead.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        self.of_user = dataset
        self._seed = seed
        self._told: dict[str, int] = {}

    def __getitem__(self, place: Place) -> Any:
        """Return a sample, read with random numbers of its own."""
        self._tell(EPOCH, place.epoch)
        if place.step is not None:
            self._tell(STEP, place.step)
        seed_everything(mixed_seed(self._seed, place.epoch, place.index))
        return self.of_user[place.index]

    def _tell(self, name: str, number: int) -> None:
        if self._told.get(name) == number:
            return
        self._told[name] = number
        tell(self.of_user, name, number, self._seed)


def of_dataset(dataset: Any, name: str) -> Any:
    """Return an attribute of a data set, else of the one that it is a part of; None without one.

    `random_split` gives parts that hide what the whole has.
    """
    while (found := getattr(dataset, name, None)) is None and isinstance(dataset, Subset):
        dataset = dataset.dataset
    return found


def tell(dataset: Any, name: str, number: int, seed: int) -> None:
    """Call a method of the user's data set, if it has it, alike in all processes that read."""
    method = of_dataset(dataset, name)
    if callable(method):
        seed_everything(mixed_seed(seed, name, number))
        method(number)


def mixed_seed(*numbers: int | str) -> int:
    """Return a seed that depends on all of these, and is another for any others."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def seed_everything(seed: int) -> None:
    """Set every random source that user code may read: Python's, torch's, and numpy's if loaded."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
