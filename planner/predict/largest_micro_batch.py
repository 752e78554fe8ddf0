"""The largest micro-batch that fits, where memory does not grow evenly with it.

What a step hands out grows with the micro-batch. What the allocator keeps beside that does not: a
block for which no free segment is large enough makes a new one, and of a slightly larger step it
may be cut out of a segment that an earlier block left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LARGEST_TRIED = 2**30
STEP = 64
"""Above the largest that bisection finds, sizes are tried this part of it apart."""


@dataclass(frozen=True)
class Tried:
    """One micro-batch that was tried."""

    fits: bool
    is_beyond: bool
    """Whether what is handed out alone is more than there is: no larger one fits either."""


@dataclass(frozen=True)
class Largest:
    """The largest micro-batch that was found to fit."""

    size: int
    smaller_fit: bool = True
    """Whether all smaller ones that were tried fit too."""


def largest_that_fits(ask: Callable[[int], Tried], *, asked: int = 1) -> Largest | None:
    """Return the largest micro-batch that fits, None if neither one sample nor `asked` does.

    Args:
        ask: what is known of a micro-batch.
        asked: one that is tried too, so that the answer about it and this one agree.
    """
    known: dict[int, Tried] = {}

    def tried(size: int) -> Tried:
        if size not in known:
            known[size] = ask(size)
        return known[size]

    begun = [size for size in (1, asked) if tried(size).fits]
    if not begun:
        return None
    low = max(begun[-1], _bisected(tried, *_doubled(tried, begun[0])))
    low = _looked_above(tried, low)
    return Largest(low, all(one.fits for size, one in known.items() if size < low))


def largest_below(ask: Callable[[int], Tried], size: int) -> int | None:
    """Return a micro-batch below one that does not fit, such that the next one does not either."""
    return _bisected(ask, 1, size) if size > 1 and ask(1).fits else None


def _doubled(tried: Callable[[int], Tried], low: int) -> tuple[int, int]:
    """Return a size that fits and one, at most twice that, that does not."""
    high = 2 * low
    while high <= LARGEST_TRIED and tried(high).fits:
        low, high = high, high * 2
    return low, high


def _bisected(tried: Callable[[int], Tried], low: int, high: int) -> int:
    if high > LARGEST_TRIED:
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tried(middle).fits else (low, middle)
    return low


def _looked_above(tried: Callable[[int], Tried], low: int) -> int:
    """Return the largest size that fits above one that does, up to where nothing can."""
    size = _next(low)
    found = False
    while size <= LARGEST_TRIED and not tried(size).is_beyond:
        if tried(size).fits:
            low, found = size, True
        size = _next(size)
    return _bisected(tried, low, _next(low)) if found else low


def _next(size: int) -> int:
    return size + max(1, size // STEP)
