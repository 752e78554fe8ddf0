"""The largest micro-batch that fits: memory does not grow evenly with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuplan.planner.predict.largest_micro_batch import (
    Largest,
    Tried,
    largest_below,
    largest_that_fits,
)


def holding(*ranges: range, beyond: int) -> Callable[[int], Tried]:
    """Return what is known of sizes where those of these ranges fit."""
    return lambda size: Tried(any(size in one for one in ranges), size >= beyond)


@pytest.mark.parametrize("most", [1, 2, 3, 64, 100, 1000, 12345])
def test_memory_that_grows_evenly_has_one_end(most: int) -> None:
    ask = holding(range(1, most + 1), beyond=most + 1)
    assert largest_that_fits(ask) == Largest(most)
    assert largest_that_fits(ask, asked=10 * most) == Largest(most)


def test_larger_ones_that_fit_again_are_found() -> None:
    """`fits` said Yes to 1,260 samples, and that 1,120 were the most that fit."""
    ask = holding(range(1, 1121), range(1230, 1270), beyond=1400)
    assert largest_that_fits(ask) == Largest(1269, smaller_fit=False)


@pytest.mark.parametrize("asked", [1121, 1130, 1289])
def test_the_one_that_is_asked_about_counts(asked: int) -> None:
    """Two samples wide, the hole or the island, which no other size that is tried falls into."""
    ask = holding(range(1, asked), range(asked + 1, 2000), beyond=2000)
    assert largest_that_fits(ask, asked=asked) == Largest(1999, smaller_fit=False)
    alone = holding(range(1, 1000), range(asked, asked + 1), beyond=1400)
    found = largest_that_fits(alone, asked=asked)
    assert found is not None and found.size >= asked and not found.smaller_fit


def test_nothing_is_tried_beyond_what_is_handed_out() -> None:
    seen: list[int] = []

    def ask(size: int) -> Tried:
        seen.append(size)
        return Tried(size <= 1000, size > 1010)

    assert largest_that_fits(ask) == Largest(1000)
    assert len(seen) == len(set(seen)) < 25, "each is asked about once"


def test_nothing_fits() -> None:
    assert largest_that_fits(holding(beyond=1)) is None
    assert largest_that_fits(holding(range(3, 4), beyond=5), asked=3) == Largest(
        3, smaller_fit=False
    )


def test_a_smaller_one_of_a_size_in_a_hole() -> None:
    ask = holding(range(1, 800), range(820, 1001), beyond=1200)
    assert largest_below(ask, 810) == 799
    assert largest_below(ask, 1100) in (799, 1000)
    assert largest_below(holding(beyond=1), 5) is None
    assert largest_below(ask, 1) is None
