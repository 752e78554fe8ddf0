"""CUDA's caching allocator replayed: what a step holds at its peak, allocated and reserved.

Rules and constants: torch c10/cuda/CUDACachingAllocator.cpp (2.13, default settings): sizes round
up to 512 bytes; requests up to 1 MiB come from 2 MiB segments, up to 10 MiB from 20 MiB segments,
larger ones from a segment of their own rounded up to 2 MiB; the smallest free block that fits is
taken and split, and a freed block merges with free neighbours. Segments are released only when
the device would run out otherwise: then every wholly free one is, and the request is tried again.
cuBLAS's workspaces are from the same pool (aten/src/ATen/cuda/CublasHandlePool.cpp).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...catalog.units import MIB
from ..profile import CATEGORIES, Affine, Category, MemoryStream, StepTrace

ROUND_BYTES = 512
SMALL_REQUEST_BYTES = 1 * MIB
SMALL_SEGMENT_BYTES = 2 * MIB
MEDIUM_REQUEST_BYTES = 10 * MIB
MEDIUM_SEGMENT_BYTES = 20 * MIB
LARGE_ROUND_BYTES = 2 * MIB
ADDRESS_BITS = 60
"""Of a made-up address: more than a billion segments of a gigabyte."""
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1


class PoolExhaustedError(Exception):
    """The step does not fit in the memory that the replay was limited to."""


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


class CachingAllocator:
    """The allocator's books; addresses are made up, segments never adjacent.

    Args:
        limit_bytes: what the device has for the pool; None is no limit.
    """

    def __init__(self, limit_bytes: float | None = None) -> None:
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_reserved_bytes = 0
        self._limit_bytes = float("inf") if limit_bytes is None else limit_bytes
        self._next_address = 0
        self._segments: dict[int, int] = {}
        """Size of each segment by its address."""
        self._free: tuple[list[int], list[int]] = ([], [])
        """Free blocks of the small and of the large pool, in order: size << ADDRESS_BITS | address.

        Plain numbers are compared sooner than tuples, and a step makes some thousand storages."""
        self._size_at: dict[int, int] = {}
        """Size of the free block that starts at an address."""
        self._start_of_end: dict[int, int] = {}
        """Start of the free block that ends at an address."""

    def allocate(self, size_bytes: int) -> tuple[int, int, int]:
        """Take a block and return its handle for `free`: (pool, address, size).

        Raises:
            PoolExhaustedError: the limit is reached even after free segments were released.
        """
        size = (size_bytes + ROUND_BYTES - 1) & -ROUND_BYTES or ROUND_BYTES
        pool = 0 if size <= SMALL_REQUEST_BYTES else 1
        free = self._free[pool]
        at = bisect_left(free, size << ADDRESS_BITS)
        if at < len(free):
            block = free.pop(at)
            found, address = block >> ADDRESS_BITS, block & ADDRESS_MASK
            del self._size_at[address], self._start_of_end[address + found]
        else:
            found, address = _segment_bytes(size), self._next_address
            self._reserve(address, found)
        left = found - size
        if left >= ROUND_BYTES if pool == 0 else left > SMALL_REQUEST_BYTES:
            rest = address + size
            insort(free, left << ADDRESS_BITS | rest)
            self._size_at[rest] = left
            self._start_of_end[rest + left] = rest
        else:
            size = found
        self.allocated_bytes += size
        return pool, address, size

    def free(self, handle: tuple[int, int, int]) -> None:
        """Free a block; it merges with free neighbours of its segment."""
        pool, address, size = handle
        self.allocated_bytes -= size
        sizes, starts, free = self._size_at, self._start_of_end, self._free[pool]
        end = address + size
        after = sizes.pop(end, None)
        if after is not None:
            del free[bisect_left(free, after << ADDRESS_BITS | end)]
            end += after
        before = starts.pop(address, None)
        if before is not None:
            del free[bisect_left(free, (address - before) << ADDRESS_BITS | before)]
            address = before
        insort(free, (end - address) << ADDRESS_BITS | address)
        sizes[address] = end - address
        starts[end] = address

    def _reserve(self, address: int, size: int) -> None:
        if self.reserved_bytes + size > self._limit_bytes:
            self._give_back_free_segments()
        if self.reserved_bytes + size > self._limit_bytes:
            raise PoolExhaustedError
        self._next_address = address + size + ROUND_BYTES
        self._segments[address] = size
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _give_back_free_segments(self) -> None:
        for address, size in list(self._segments.items()):
            if self._size_at.get(address) == size:
                self._free[0 if size == SMALL_SEGMENT_BYTES else 1].remove(
                    size << ADDRESS_BITS | address
                )
                del self._size_at[address], self._start_of_end[address + size]
                self.reserved_bytes -= self._segments.pop(address)


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


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple that is not below a value; at least one."""
    return max(1, -(-value // multiple)) * multiple


def _segment_bytes(size: int) -> int:
    if size <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < MEDIUM_REQUEST_BYTES:
        return MEDIUM_SEGMENT_BYTES
    return round_up(size, LARGE_ROUND_BYTES)


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
