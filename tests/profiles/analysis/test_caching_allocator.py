"""The caching allocator takes, splits, merges and keeps its books by the rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.units import MIB
from gpuplan.profiles.analysis.caching_allocator import CachingAllocator


@pytest.mark.parametrize(
    ("request_bytes", "taken_bytes", "reserved_bytes"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (9 * MIB, 9 * MIB, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 11 * MIB, 12 * MIB),
        (11 * MIB - 100, 11 * MIB, 12 * MIB),
    ],
)
def test_first_request_takes_a_segment_by_size(
    request_bytes: int, taken_bytes: int, reserved_bytes: int
) -> None:
    allocator = CachingAllocator()
    allocator.allocate(request_bytes)
    # A rest of 1 MiB or less is not split off a large block, so it counts as taken.
    rest = reserved_bytes - taken_bytes
    whole = taken_bytes > MIB and rest <= MIB
    assert allocator.allocated_bytes == (reserved_bytes if whole else taken_bytes)
    assert allocator.reserved_bytes == reserved_bytes


def test_freed_neighbours_merge_and_are_taken_again() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(5 * MIB) for _ in range(4)]
    assert allocator.reserved_bytes == 20 * MIB
    for block in (blocks[0], blocks[2], blocks[1]):
        allocator.free(block)
    allocator.allocate(9 * MIB)
    assert allocator.reserved_bytes == 20 * MIB


def test_smallest_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    large, small = allocator.allocate(40 * MIB), allocator.allocate(30 * MIB)
    allocator.free(large)
    allocator.free(small)
    assert allocator.allocate(29 * MIB)[1] == small[1]


def test_blocks_larger_than_any_device_are_told_apart() -> None:
    """A micro-batch of 10¹¹ samples ended in a KeyError where it does not fit."""
    allocator = CachingAllocator()
    huge = 2**62
    handles = [allocator.allocate(huge) for _ in range(4)]
    for handle in handles:
        allocator.free(handle)
    again = [allocator.allocate(huge) for _ in range(4)]
    assert {one[1] for one in again} == {one[1] for one in handles}
    assert allocator.reserved_bytes == allocator.allocated_bytes == 4 * huge


def test_fragments_of_small_and_large_pool_stay_apart() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(20 * MIB))
    allocator.allocate(512)
    assert allocator.reserved_bytes == 22 * MIB


@given(
    st.lists(st.tuples(st.integers(1, 64 * MIB), st.booleans(), st.integers(0, 50)), max_size=60)
)
def test_books_balance(requests: list[tuple[int, bool, int]]) -> None:
    allocator = CachingAllocator()
    held: list[tuple[int, int, int]] = []
    for size, free_one, which in requests:
        held.append(allocator.allocate(size))
        if free_one:
            allocator.free(held.pop(which % len(held)))
        assert allocator.allocated_bytes == sum(block[2] for block in held)
        assert allocator.allocated_bytes <= allocator.reserved_bytes
        spans = sorted((address, address + size) for _, address, size in held)
        assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:], strict=False))
    for block in held:
        allocator.free(block)
    assert allocator.allocated_bytes == 0
