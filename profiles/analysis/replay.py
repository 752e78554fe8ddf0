"""A training step replayed on CUDA's caching allocator: what it holds at its peak.

Allocated and reserved, at any micro-batch size. cuBLAS's workspaces are from the same pool
(torch, aten/src/ATen/cuda/CublasHandlePool.cpp).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..profile import CATEGORIES, Affine, Category, MemoryStream, StepTrace
from .caching_allocator import ROUND_BYTES, CachingAllocator, round_up

MOST_ORDERS = 32
_ORDERS: dict[int, tuple[MemoryStream, list[tuple[int, int, bool]]]] = {}
"""Event orders of the streams that were replayed last, by identity."""


@dataclass(frozen=True, kw_only=True)
class MemoryReplay:
    """The memory of one step at one micro-batch size."""

    peak_allocated_bytes: int
    """Most bytes in live tensors at once, each rounded up to 512 (`max_memory_allocated`)."""
    peak_reserved_bytes: int
    """Bytes the allocator took from the device (`max_memory_reserved`)."""
    breakdown_bytes: dict[Category, int]
    """What is allocated at that peak, by category; sums to `peak_allocated_bytes`."""
    peak_tick: int
    """The operation at which the peak is reached; -1: before the step."""
    workspace_bytes: int = 0
    """What libraries hold of both peaks, all workspaces together."""


def replay(
    step: StepTrace,
    micro_batch: int,
    *,
    limit_bytes: float | None = None,
    keeps_gradients: bool = False,
    built_in_fp32: bool = False,
    workspace_bytes: int = 0,
) -> MemoryReplay:
    """Return what a step holds at its peak, at this micro-batch size, once training has begun.

    Two steps are replayed on a new pool: optimizers make their state when they first step, in what
    the first backward pass has freed, and the blocks that it splits are whole no more afterwards.

    Args:
        step: the traced step.
        micro_batch: samples.
        limit_bytes: memory that the pool may take; None is as much as it likes.
        keeps_gradients: whether gradients outlive a step, so that those of the next are added.
        built_in_fp32: whether 16-bit parameters were made in fp32 on the device, and then cast one
            by one: the pool keeps what both took.
        workspace_bytes: what cuBLAS takes from the pool for each thread that multiplies, and keeps:
            the forward pass has one and autograd another. Either is cut out of what happens to be
            free when its thread first multiplies, which leaves no whole block there.

    Raises:
        PoolExhaustedError: the step needs more than `limit_bytes`.
    """
    memory = step.memory
    sizes = [round(Affine(*size).at(micro_batch)) for size in zip(*memory.growth, strict=True)]
    kept = _gradients(step) if keeps_gradients else frozenset[int]()
    pool = _Pool(memory, sizes, limit_bytes, kept)
    multiplies = _first_products(step) if workspace_bytes else []
    if built_in_fp32:
        pool.cast_parameters()
    pool.run(
        state_from_tick=_first_tick(step, "optimizer"),
        workspace_bytes=workspace_bytes,
        multiplies_at=multiplies,
    )
    pool.next_step()
    pool.run()
    return MemoryReplay(
        peak_allocated_bytes=pool.most,
        peak_reserved_bytes=pool.allocator.peak_reserved_bytes,
        breakdown_bytes=_breakdown(memory, sizes, pool.alive_at_peak, pool.most, kept),
        peak_tick=pool.peak_tick,
        workspace_bytes=workspace_bytes * len(multiplies),
    )


class _Pool:
    """The allocator while steps of one memory stream run on it."""

    def __init__(
        self,
        memory: MemoryStream,
        sizes: list[int],
        limit_bytes: float | None,
        kept: frozenset[int],
    ) -> None:
        self._memory, self._sizes, self._kept = memory, sizes, kept
        self.allocator = CachingAllocator(limit_bytes)
        self._handles: dict[int, tuple[int, int, int]] = {}
        self.most, self.peak_tick, self.alive_at_peak = 0, -1, 0

    def run(
        self,
        *,
        state_from_tick: int | None = None,
        workspace_bytes: int = 0,
        multiplies_at: Sequence[int] = (),
    ) -> None:
        """Run one step, in which the optimizer's state may not exist before a tick.

        Nor do the workspaces of libraries, one from each of some ticks on.
        """
        state = [] if state_from_tick is None else self._state()
        waits = set(state)
        sizes, handles, allocator = self._sizes, self._handles, self.allocator
        multiplies_at = list(multiplies_at)
        for order, (tick, row, born) in enumerate(events(self._memory)):
            while multiplies_at and tick >= multiplies_at[0]:
                allocator.allocate(workspace_bytes)
                del multiplies_at[0]
            if waits and state_from_tick is not None and tick >= state_from_tick:
                self._make(state, order, tick)
                waits = set()
            if not born:
                handle = None if row in self._kept else handles.pop(row, None)
                if handle is not None:
                    allocator.free(handle)
            elif sizes[row] > 0 and row not in waits and row not in handles:
                # Spelled out: a step makes some thousand storages, and is replayed for every plan.
                handles[row] = allocator.allocate(sizes[row])
                if allocator.allocated_bytes > self.most:
                    self._mark_peak(order, tick)
            elif row in self._kept and row in handles:
                self._add(row, order, tick)
        self._make(sorted(waits), 0, -1)

    def cast_parameters(self) -> None:
        """Make parameters, before all else, from ones that are twice as large."""
        number, allocator = CATEGORIES.index("parameters"), self.allocator
        rows = [
            row
            for row, category in enumerate(self._memory.category)
            if category == number and self._memory.birth_tick[row] < 0 and self._sizes[row] > 0
        ]
        for row, wide in [(row, allocator.allocate(2 * self._sizes[row])) for row in rows]:
            self._handles[row] = allocator.allocate(self._sizes[row])
            allocator.free(wide)

    def next_step(self) -> None:
        """Free what a step leaves behind (gradients) and forget its peak, but not the pool."""
        births = self._memory.birth_tick
        for row in [row for row in self._handles if births[row] >= 0 and row not in self._kept]:
            self.allocator.free(self._handles.pop(row))
        self.most = 0

    def _add(self, row: int, order: int, tick: int) -> None:
        """Make a gradient that is added to the one kept from the step before, and is gone."""
        handle = self.allocator.allocate(self._sizes[row])
        if self.allocator.allocated_bytes > self.most:
            self._mark_peak(order, tick)
        self.allocator.free(handle)

    def _make(self, rows: Sequence[int], order: int, tick: int) -> None:
        for row in rows:
            if self._sizes[row] > 0 and row not in self._handles:
                self._handles[row] = self.allocator.allocate(self._sizes[row])
        if self.allocator.allocated_bytes > self.most:
            self._mark_peak(order, tick)

    def _mark_peak(self, order: int, tick: int) -> None:
        self.most, self.peak_tick = self.allocator.allocated_bytes, tick
        self.alive_at_peak = order

    def _state(self) -> list[int]:
        number = CATEGORIES.index("optimizer")
        births, categories = self._memory.birth_tick, self._memory.category
        return [
            row
            for row, (birth, category) in enumerate(zip(births, categories, strict=True))
            if birth < 0 and category == number
        ]


def _gradients(step: StepTrace) -> frozenset[int]:
    """Return the gradients that a step makes and its optimizer reads."""
    memory, read = step.memory, _first_tick(step, "optimizer")
    number = CATEGORIES.index("gradients")
    rows = zip(memory.category, memory.birth_tick, memory.death_tick, strict=True)
    return frozenset(
        row
        for row, (category, birth, death) in enumerate(rows)
        if category == number and 0 <= birth < read < death
    )


def _first_products(step: StepTrace) -> list[int]:
    """Return the ticks at which the forward pass, and then autograd's thread, first multiply.

    What is recomputed runs in that thread.
    """
    found: dict[bool, int] = {}
    for start, number in zip(step.start_tick, step.schedule, strict=True):
        segment = step.segments[number]
        # Traces of before offsets were kept have none.
        for kernel, offset in zip(segment.kernels, segment.offsets, strict=False):
            if kernel.kind == "gemm" and segment.phase != "optimizer":
                found.setdefault(segment.phase == "forward", start + offset)
    return sorted(found.values())


def _first_tick(step: StepTrace, phase: str) -> int:
    for at, number in enumerate(step.schedule):
        if step.segments[number].phase == phase:
            return step.start_tick[at]
    return step.memory.end_tick


def events(memory: MemoryStream) -> Sequence[tuple[int, int, bool]]:
    """Return (tick, row, born?) in the order of the step: at one tick, deaths come first."""
    # A stream is replayed at many batch sizes; their order is the same.
    known = _ORDERS.get(id(memory))
    if known is None or known[0] is not memory:
        known = (memory, list(_ordered(memory)))
        if len(_ORDERS) >= MOST_ORDERS:
            _ORDERS.clear()
        _ORDERS[id(memory)] = known
    return known[1]


def _ordered(memory: MemoryStream) -> Iterator[tuple[int, int, bool]]:
    deaths = sorted(
        (tick, row) for row, tick in enumerate(memory.death_tick) if tick < memory.end_tick
    )
    next_death = 0
    for row, birth in enumerate(memory.birth_tick):
        while next_death < len(deaths) and deaths[next_death][0] <= birth:
            yield deaths[next_death][0], deaths[next_death][1], False
            next_death += 1
        yield birth, row, True
    for tick, row in deaths[next_death:]:
        yield tick, row, False


def _breakdown(
    memory: MemoryStream,
    sizes: list[int],
    last_event: int,
    peak_bytes: int,
    kept: frozenset[int],
) -> dict[Category, int]:
    alive = _alive_after(events(memory), last_event) | kept
    totals = dict.fromkeys(CATEGORIES, 0)
    for row in alive:
        if sizes[row] > 0:
            totals[CATEGORIES[memory.category[row]]] += round_up(sizes[row], ROUND_BYTES)
    # A large block that is not worth splitting is allocated whole; it is nobody's tensor.
    totals["temporary"] += peak_bytes - sum(totals.values())
    return totals


def _alive_after(stream: Iterable[tuple[int, int, bool]], last_event: int) -> set[int]:
    alive: set[int] = set()
    for order, (_, row, born) in enumerate(stream):
        if born:
            alive.add(row)
        else:
            alive.discard(row)
        if order == last_event:
            break
    return alive
