"""What the caching allocator reserves of a step, over what the step allocates: usual and least."""

from __future__ import annotations

from bisect import bisect_left
from typing import TypedDict

from ....profiles.analysis.caching_allocator import PoolExhaustedError
from ....profiles.analysis.replay import MemoryReplay, replay
from ....profiles.profile import StepTrace

TIGHT_RATIOS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.08, 1.12, 1.17, 1.23, 1.3, 1.4)
"""Pool sizes over the allocated peak that are tried when memory is short."""


class ReplayWays(TypedDict):
    """How a step is replayed."""

    keeps_gradients: bool
    built_in_fp32: bool
    workspace_bytes: int


def reserved_ratio(step: StepTrace, micro_batch: int, ways: ReplayWays, *, tight: bool) -> float:
    """Return reserved ÷ allocated peak of a step, the workspaces of libraries in neither.

    Args:
        step: as it runs.
        micro_batch: samples.
        ways: how it is replayed.
        tight: the least that the step runs in, instead of what it takes with memory enough.
    """
    pool = replay(step, micro_batch, **ways)
    return _least_ratio(step, micro_batch, pool, ways) if tight else _ratio(pool)


def _ratio(pool: MemoryReplay) -> float:
    """Return reserved ÷ allocated bytes of a replay, without its workspaces."""
    held = pool.workspace_bytes
    return (pool.peak_reserved_bytes - held) / max(1, pool.peak_allocated_bytes - held)


def _least_ratio(step: StepTrace, micro_batch: int, pool: MemoryReplay, ways: ReplayWays) -> float:
    """Return the smallest of some pools, relative to the allocated peak, that the step runs in.

    Found by bisection: what runs in a pool is taken to run in any larger one.

    Args:
        step: as it runs.
        micro_batch: samples.
        pool: its replay with memory enough.
        ways: how it was replayed.
    """
    usual, held = _ratio(pool), pool.workspace_bytes
    allocated = max(1, pool.peak_allocated_bytes - held)
    tried = [ratio for ratio in TIGHT_RATIOS if ratio < usual]

    def runs(ratio: float) -> bool:
        try:
            replay(step, micro_batch, limit_bytes=ratio * allocated + held, **ways)
        except PoolExhaustedError:
            return False
        return True

    found = bisect_left(tried, True, key=runs)
    return tried[found] if found < len(tried) else usual
