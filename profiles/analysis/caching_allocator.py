"""CUDA's caching allocator, by its rules: what it takes from a device for what is asked of it.

Rules and constants: torch c10/cuda/CUDACachingAllocator.cpp (2.13, default settings): sizes round
up to 512 bytes; requests up to 1 MiB come from 2 MiB segments, up to 10 MiB from 20 MiB segments,
larger ones from a segment of their own rounded up to 2 MiB; the smallest free block that fits is
taken and split, and a freed block merges with free neighbours. Segments are released only when
the device would run out otherwise: then every wholly free one is, and the request is tried again.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from ...catalog.units import MIB

ROUND_BYTES = 512
SMALL_REQUEST_BYTES = 1 * MIB
SMALL_SEGMENT_BYTES = 2 * MIB
MEDIUM_REQUEST_BYTES = 10 * MIB
MEDIUM_SEGMENT_BYTES = 20 * MIB
LARGE_ROUND_BYTES = 2 * MIB
ADDRESS_BITS = 128
"""Of a made-up address, which no step outgrows, whatever micro-batch is asked about: a thousand
segments of 10²⁰ samples with a gigabyte each are 107 bits."""
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1


class PoolExhaustedError(Exception):
    """What is asked for does not fit in the memory that the pool was limited to."""


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


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple that is not below a value; at least one."""
    return max(1, -(-value // multiple)) * multiple


def _segment_bytes(size: int) -> int:
    if size <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < MEDIUM_REQUEST_BYTES:
        return MEDIUM_SEGMENT_BYTES
    return round_up(size, LARGE_ROUND_BYTES)
