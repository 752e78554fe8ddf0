"""The most useful facts of a traced step: its costliest kernels."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
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


def costliest_kernels(
    step: StepTrace, micro_batch: int, *, limit: int = 10
) -> tuple[KernelCost, ...]:
    """Return the kernels with the most FLOPs in a step, those without FLOPs by bytes after them."""
    runs = Counter(step.schedule)
    merged: dict[tuple[object, ...], KernelCost] = {}
    for index, segment in enumerate(step.segments):
        for kernel in segment.kernels:
            cost = _cost(kernel, segment, runs[index], micro_batch)
            # An optimizer is many small operations on the same elements: a reader wants the sum.
            op = "" if cost.kind == "optimizer" else cost.op
            key = (op, cost.module, cost.phase, cost.block, tuple(cost.dims.items()))
            merged[key] = _added(merged[key], cost) if key in merged else cost
    ordered = sorted(merged.values(), key=lambda cost: (-cost.flops, -cost.traffic_bytes))
    return tuple(ordered[:limit])


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


def _cost(kernel: Kernel, segment: Segment, times: int, micro_batch: int) -> KernelCost:
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
    )


def _added(first: KernelCost, second: KernelCost) -> KernelCost:
    return replace(
        first,
        times=first.times + second.times,
        flops=first.flops + second.flops,
        traffic_bytes=first.traffic_bytes + second.traffic_bytes,
    )
