"""The largest micro-batch that runs, found by running it: doubling, then bisection."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..measured import LargestMicroBatch

CLOSE_ENOUGH = 64
"""The search ends within 1/64 of the answer; below 64 samples it is exact."""
SLOWEST_TRY_S = 60.0
LARGEST_TRIED = 2**20


def largest_micro_batch(
    runs: Callable[[int], bool],
    *,
    start: int = 1,
    fails_at: int | None = None,
    tried: Callable[[int], None] = lambda _samples: None,
    clock: Callable[[], float] = time.perf_counter,
) -> LargestMicroBatch:
    """Return the largest micro-batch that runs; 0 samples if not even one does.

    Args:
        runs: Says whether a step of this many samples runs; False when memory ran out.
        start: Where to begin: a size that is likely to run.
        fails_at: A size that is known to run out of memory.
        tried: Is told each size before it is tried.
        clock: Seconds; a size that takes too long ends the search.
    """
    low, high = 0, fails_at
    size = start if high is None else min(start, max(1, high // 2))
    while high is None or (high - low > max(1, low // CLOSE_ENOUGH)):
        tried(size)
        started_s = clock()
        if runs(size):
            low = size
        else:
            high = size
        took_s = clock() - started_s
        if high is None and (took_s > SLOWEST_TRY_S or low >= LARGEST_TRIED):
            why = f"a step of {low} samples took {took_s:.0f} s"
            if low >= LARGEST_TRIED:
                why = f"{low:,} samples still ran"
            return LargestMicroBatch(samples=low, fails_at=None, note=f"ended early: {why}")
        size = 2 * low if high is None else (low + high) // 2
        if high is not None and size <= low:
            break
    return LargestMicroBatch(samples=low, fails_at=high)
