"""How fast the user's `build_dataset()` gives samples: a DataLoader with 0, 1, 2, 4 … workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset

from ...catalog.errors import UserFileError
from ..measured import InputPipeline, InputSpeed
from ..user_model.checks import described

SECONDS_EACH = 2.0
"""Seconds of loading for each number of workers, after the first batch has come."""
MIN_BATCHES = 4
SATURATED_BELOW = 1.10
"""More workers stop being tried when twice as many give less than this times the speed."""


def input_pipeline(
    dataset: Any,
    *,
    batch_size: int,
    step_s: float,
    cores: int,
    ran: Callable[[int], None],
    seconds_each: float = SECONDS_EACH,
) -> InputPipeline:
    """Return how many samples a second a data set gives, by workers, until more do not help.

    Args:
        dataset: What `build_dataset()` returned.
        batch_size: Samples in one batch.
        step_s: Seconds of a step of that many samples; what the input must keep up with.
        cores: Most workers that are tried.
        ran: Is told the number of workers before each try.
        seconds_each: How long each try loads.

    Raises:
        UserFileError: it is no data set.
    """
    if not isinstance(dataset, Dataset) and not hasattr(dataset, "__getitem__"):
        raise UserFileError(
            f"build_dataset() returned {described(dataset)}, not a data set.",
            fix="return a torch.utils.data.Dataset or IterableDataset.",
        )
    speeds: list[InputSpeed] = []
    per_core: list[float] = []
    for workers in _worker_counts(cores):
        ran(workers)
        samples_per_s, cpu_s_per_sample = _speed(dataset, batch_size, workers, seconds_each)
        speeds.append(InputSpeed(workers=workers, samples_per_s=samples_per_s))
        per_core.append(1 / cpu_s_per_sample if cpu_s_per_sample > 0 else samples_per_s)
        if workers > 1 and samples_per_s < SATURATED_BELOW * speeds[-2].samples_per_s:
            break
    best = max(speed.samples_per_s for speed in speeds)
    one = next((speed for speed in speeds if speed.workers == 1), speeds[0])
    needed_s = batch_size / best
    return InputPipeline(
        speeds=tuple(speeds),
        best_samples_per_s=best,
        samples_per_s_per_worker=one.samples_per_s,
        samples_per_s_per_core=per_core[0],
        waiting_share=max(0.0, 1 - step_s / needed_s),
    )


def _worker_counts(cores: int) -> Iterator[int]:
    yield 0
    workers = 1
    while workers <= cores:
        yield workers
        workers *= 2


def _speed(dataset: Any, batch_size: int, workers: int, seconds: float) -> tuple[float, float]:
    """Return samples a second, and processor seconds of this process per sample."""
    counted = hasattr(dataset, "__len__")
    size = max(1, min(batch_size, len(dataset))) if counted else batch_size
    loader = DataLoader(dataset, batch_size=size, num_workers=workers, drop_last=counted)
    batches = _endless(loader)
    next(batches)  # Workers start, files are opened.
    # What the workers made meanwhile was not made in the time that is measured.
    for _ in range(2 * workers):
        next(batches)
    started_s, cpu_started_s = time.perf_counter(), _own_cpu_s()
    count = 0
    while count < MIN_BATCHES or time.perf_counter() - started_s < seconds:
        next(batches)
        count += 1
    loaded = count * size
    wall_s = time.perf_counter() - started_s
    return loaded / wall_s, (_own_cpu_s() - cpu_started_s) / loaded


def _endless(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield batches epoch after epoch, as a training loop asks for them."""
    while True:
        found = False
        for batch in loader:
            found = True
            yield batch
        if not found:
            raise UserFileError(
                "build_dataset() returned a data set that gives no sample.",
                fix="check the path and the filter that it reads its samples with.",
            )


def _own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system
