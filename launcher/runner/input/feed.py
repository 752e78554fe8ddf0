"""The batches of a run, opened where it begins, and how far they were read."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ....catalog.errors import UserFileError
from ....profiles.user_model.checks import Batch
from ....profiles.user_model.workload import Workload
from ..build import Trainer
from ..job import Job
from ..processes.processes import Processes
from ..reporting.metrics import say
from ..training.numerics import input_dtype
from ..training.step import Mark
from .amount import amount_words
from .batches import Batches, DatasetBatches, has_places, open_batches
from .padding import padding_words
from .samples import Seeded, Share

Readings = dict[int, dict[int, bytes]]
"""By data rank and worker: how far streams were read."""


class Feed:
    """The micro-batches of one process, step after step."""

    def __init__(
        self, job: Job, workload: Workload, trainer: Trainer, processes: Processes
    ) -> None:
        self._job = job
        self._workload = workload
        self._trainer = trainer
        self._processes = processes
        self._batches: Batches
        self._read: Readings = {}
        """As the checkpoint had it."""
        self._said_again = False
        self._has_looked = False

    @property
    def waited_s(self) -> float:
        """Return how long the processor waited for the data of the last step."""
        return self._batches.waited_s

    def open(self, place: int) -> None:
        """Begin with the samples of a step."""
        trainer, job = self._trainer, self._job
        self._batches = open_batches(
            self._workload,
            Share.of(trainer.execution, trainer.position.data),
            self._processes.device,
            dtype=input_dtype(trainer.execution),
            seed=job.seed,
            start=place,
            workers=job.workers,
            synthetic=job.synthetic,
            group=self._processes.host_group,
            saved=self._read,
            is_first=self._processes.is_first,
        )

    def step(self, mark: Mark) -> list[Batch] | None:
        """Return the micro-batches of the next step, on the device; None where the data ended.

        Streams that deal themselves end at other steps on other ranks: the first one ends the data
        of all, since none takes a step without the others.

        Args:
            mark: told the parts of the step that end.
        """
        batches = self._batches.step()
        mark("input")
        self._say_padding(batches)
        if self._batches.passes and self._processes.is_first and not self._said_again:
            self._said_again = True
            say("data: the stream has ended, and is read again from its beginning")
        if self._batches.may_end and self._processes.host_group is not None:
            ended = torch.tensor(float(batches is None))
            dist.all_reduce(ended, dist.ReduceOp.MAX, group=self._processes.host_group)
            mark("others' input")
            return None if ended.item() else batches
        return batches

    def _say_padding(self, batches: list[Batch] | None) -> None:
        """Say, of the first step's batches, that micro-batches of other sizes count the same."""
        if batches and self._processes.is_first and not self._has_looked:
            words = padding_words(self._workload, self._trainer.execution, batches)
            if words is not None:
                say(words)
        self._has_looked = True

    def say_ended(self, step: int) -> None:
        """Say that the data ended.

        Args:
            step: steps that are done.

        Raises:
            UserFileError: there was not one.
        """
        if step == 0:
            raise UserFileError(
                "build_dataset() returned a data set with fewer samples than one step takes"
                f" ({self._trainer.execution.global_batch}).",
                fix="give it more samples, or take a smaller global batch.",
            )
        if self._processes.is_first:
            say(f"data: the stream ended after step {step:,} of {self._job.steps:,}: the run ends")

    def state(self) -> Readings:
        """Return how far streams were read, by every process; collective."""
        own = (self._trainer.position.data, self._batches.readings())
        told: list[Any] = [own] * self._processes.world
        if self._processes.world > 1:
            dist.all_gather_object(told, own, self._processes.host_group)
        return {rank: by_worker for rank, by_worker in told if by_worker}

    def restore(self, state: Readings) -> None:
        """Go on from there when the batches are opened next."""
        self._read = state

    @property
    def dataset(self) -> Seeded | None:
        """Return the data set of the batches that are open; None of streams and synthetic ones."""
        found = self._batches.dataset if isinstance(self._batches, DatasetBatches) else None
        return found if isinstance(found, Seeded) else None

    @property
    def epoch_steps(self) -> int | None:
        """Return the steps of an epoch of the batches that are open; None where there is none."""
        samples = self._batches.samples
        return samples // self._trainer.execution.global_batch if samples else None

    def steps_per_epoch(self) -> int | None:
        """Return the steps of an epoch; None where nobody knows, or there is no data set."""
        workload = self._workload
        if workload.build_dataset is None or self._job.synthetic:
            return None
        dataset = workload.build_dataset()
        if not has_places(dataset):
            return None
        return len(dataset) // self._trainer.execution.global_batch or None

    def say_amount(self) -> None:
        """Say how many samples and epochs the steps are, of a data set."""
        job, global_batch = self._job, self._trainer.execution.global_batch
        if self._workload.build_dataset is not None and not job.synthetic:
            say(f"data: {amount_words(job.steps, global_batch, self._batches.samples)}")
