"""Which loop of the user's code most operations of a step come from: why a trace takes long.

A loop over time steps or experts is slow to trace, and to train with, where each turn launches
kernels of its own. The code that runs is looked at now and then, so that looking costs nothing.
"""

from __future__ import annotations

import ast
import linecache
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .callers import calling_frames

LEAST_SHARE = 0.5
"""Share of the operations from which a loop is what makes a step long."""
_Lines = tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class BusyLoop:
    """A loop, and how much of the forward pass runs in it."""

    place: str
    """File and line: "moe.py:41"."""
    share: float
    """Of the operations of the forward pass so far, with those of the functions that it calls."""


class BusyLoops:
    """Counts in which loops operations were found."""

    def __init__(self) -> None:
        self._found: Counter[_Lines] = Counter()

    def look(self) -> None:
        """Note which lines are running."""
        lines = tuple((frame.f_code.co_filename, frame.f_lineno) for frame in calling_frames(()))
        self._found[lines] += 1

    def busiest(self) -> BusyLoop | None:
        """Return the innermost loop that most operations come from; None where there is none."""
        counts: Counter[tuple[str, int]] = Counter()
        depths: dict[tuple[str, int], int] = defaultdict(int)
        for lines, times in self._found.items():
            for depth, loop in enumerate(dict.fromkeys(_around(lines))):
                counts[loop] += times
                depths[loop] += depth * times
        total = sum(self._found.values())
        most = [loop for loop, times in counts.items() if times >= LEAST_SHARE * total]
        if not most:
            return None
        file, line = innermost = min(most, key=lambda loop: depths[loop] / counts[loop])
        return BusyLoop(place=f"{Path(file).name}:{line}", share=counts[innermost] / total)

    def by_loop(self) -> Counter[tuple[str, int]]:
        """Return how often each loop, by file and line, was found at work."""
        counts: Counter[tuple[str, int]] = Counter()
        for lines, times in self._found.items():
            counts.update(dict.fromkeys(_around(lines), times))
        return counts

    def depth(self, loop: tuple[str, int]) -> int:
        """Return how deep in others a loop lies: the innermost of all at work has 0."""
        return min(
            [*dict.fromkeys(_around(lines))].index(loop)
            for lines in self._found
            if loop in _around(lines)
        )


def unequal_loop(one: BusyLoops, other: BusyLoops) -> str | None:
    """Return the place of the innermost loop that was at work more often in one of two steps."""
    counts, others = one.by_loop(), other.by_loop()
    unequal = [loop for loop in counts if loop in others and counts[loop] != others[loop]]
    if not unequal:
        return None
    file, line = min(unequal, key=one.depth)
    return f"{Path(file).name}:{line}"


def _around(lines: _Lines) -> Iterator[tuple[str, int]]:
    """Yield the loops around lines that call each other, from the innermost outwards."""
    for file, line in lines:
        for first, last, loop in _loops(file):
            if first <= line <= last:
                yield file, loop


@cache
def _loops(file: str) -> tuple[tuple[int, int, int], ...]:
    """Return (first line, last line, line of the loop) of each loop's body, inner ones first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    found = [
        (node.body[0].lineno, node.end_lineno or node.lineno, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.While)
    ]
    found += [
        (node.lineno, node.end_lineno or node.lineno, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
    ]
    return tuple(sorted(found, reverse=True))
