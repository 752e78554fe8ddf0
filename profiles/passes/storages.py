"""The storages of a step as rows, for passes that change some of them, and where kernels run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..profile import Kernel, MemoryStream, StepTrace

Storage = dict[str, int]
"""One storage: a value of each column that the trace's `MemoryStream` has."""
GROWTH = ("bytes_per_sample", "bytes_per_pair", "bytes_per_triple")
"""Columns of what grows with the micro-batch."""


def storages_of(stream: MemoryStream) -> list[Storage]:
    """Return the storages in order of birth; columns that a trace does not have are left out."""
    columns = {name: value for name, value in stream if isinstance(value, list) and value}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def grows(row: Storage) -> bool:
    """Return whether a storage depends on the micro-batch."""
    return any(row.get(name) for name in GROWTH)


def with_storages(step: StepTrace, storages: Sequence[Storage]) -> StepTrace:
    """Return the step with these storages in place of its own, in order of birth."""
    ordered = sorted(storages, key=lambda one: one["birth_tick"])
    names = [name for name, value in step.memory if isinstance(value, list) and value]
    columns = {name: [one[name] for one in ordered] for name in names}
    stream = step.memory.model_copy(update=columns)
    return step.model_copy(update={"memory": stream})


def kernel_ticks(step: StepTrace) -> Iterator[tuple[int, Kernel]]:
    """Yield every kernel with the tick at which it runs; of traces without offsets, none."""
    for at, number in enumerate(step.schedule):
        segment = step.segments[number]
        # Traces of before offsets were kept have none.
        for kernel, offset in zip(segment.kernels, segment.offsets, strict=False):
            yield step.start_tick[at] + offset, kernel
