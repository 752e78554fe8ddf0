"""The most useful facts of a traced step: its costliest kernels."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..profile import Kernel, KernelKind, Phase, Segment, StepTrace


@dataclass(frozen=True, kw_only=True)
class KernelCost:
    """All the times that one kernel runs in a step, with the same shape in the same module."""

    kind: KernelKind
    op: str
    module: str
    """In the first repetition of its block; empty in the root."""
    phase: Phase
    block: str | None
    dims: dict[str, float]
    times: int
    """Runs in one step, in all repetitions of its block."""
    flops: float
    """FLOPs of all its runs."""
    traffic_bytes: float
    """Bytes read and written by all its runs."""
    device_s: float
    """Seconds that all its runs take on the device that was asked about."""


def costliest_kernels(
    step: StepTrace, micro_batch: int, run_s: Sequence[float], *, limit: int = 10
) -> tuple[KernelCost, ...]:
    """Return the kernels that take longest in a step, the longest first.

    Args:
        step: the traced step.
        micro_batch: samples in it.
        run_s: seconds of one run of each kernel, in the order of `kernels_of`.
        limit: how many to return.
    """
    runs = Counter(step.schedule)
    seconds = iter(run_s)
    merged: dict[tuple[object, ...], KernelCost] = {}
    for index, segment in enumerate(step.segments):
        for kernel in segment.kernels:
            cost = _cost(kernel, segment, runs[index], micro_batch, next(seconds))
            # An optimizer is many small operations on the same elements: a reader wants the sum.
            op = "" if cost.kind == "optimizer" else cost.op
            key = (op, cost.module, cost.phase, cost.block, tuple(cost.dims.items()))
            merged[key] = _added(merged[key], cost) if key in merged else cost
    return tuple(sorted(merged.values(), key=lambda cost: -cost.device_s)[:limit])


def kernels_of(step: StepTrace) -> Iterator[Kernel]:
    """Yield the kernels of a step, those of equal segments once."""
    for segment in step.segments:
        yield from segment.kernels


def step_device_s(step: StepTrace, run_s: Sequence[float]) -> float:
    """Return the seconds of all kernels of one step, one after the other.

    Args:
        step: the traced step.
        run_s: seconds of one run of each kernel, in the order of `kernels_of`.
    """
    runs = Counter(step.schedule)
    seconds = iter(run_s)
    return sum(
        runs[index] * next(seconds)
        for index, segment in enumerate(step.segments)
        for _ in segment.kernels
    )


def phase_at(step: StepTrace, tick: int) -> Phase | None:
    """Return which phase a tick belongs to; None before the step."""
    instance = bisect_right(step.start_tick, tick) - 1
    return step.segments[step.schedule[instance]].phase if instance >= 0 else None


def step_flops(step: StepTrace, micro_batch: int) -> float:
    """Return the FLOPs of one step, recompute included."""
    runs = Counter(step.schedule)
    return sum(
        runs[index] * kernel.flops.at(micro_batch)
        for index, segment in enumerate(step.segments)
        for kernel in segment.kernels
    )


def _cost(
    kernel: Kernel, segment: Segment, times: int, micro_batch: int, run_s: float
) -> KernelCost:
    traffic_bytes = kernel.bytes_read.at(micro_batch) + kernel.bytes_written.at(micro_batch)
    return KernelCost(
        kind=kernel.kind,
        op=kernel.op,
        module=kernel.module,
        phase=segment.phase,
        block=segment.block,
        dims={name: size.at(micro_batch) for name, size in kernel.dims.items()},
        times=times,
        flops=times * kernel.flops.at(micro_batch),
        traffic_bytes=times * traffic_bytes,
        device_s=times * run_s,
    )


def _added(first: KernelCost, second: KernelCost) -> KernelCost:
    return replace(
        first,
        times=first.times + second.times,
        flops=first.flops + second.flops,
        traffic_bytes=first.traffic_bytes + second.traffic_bytes,
        device_s=first.device_s + second.device_s,
    )
