"""When simulated machines go, and when there are others: drawn, or as it was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

Array = Any
"""numpy array of floats, one for every run."""


class Stopping(Protocol):
    """When machines go, and when there are others."""

    def next_s(self, now_s: Array, which: Array) -> Array:
        """Return for how long the machines of the runs `which` go on from now."""
        ...

    def took(self, ran_s: Array, stopped: Array, which: Array) -> None:
        """Note that they ran so long, and which of them a stop ended."""
        ...

    def saved(self, which: Array, stopped: Array) -> Array:
        """Return whether the stop that ended a run came with a notice that saved its work."""
        ...

    def wait_s(self, now_s: Array, which: Array) -> Array:
        """Return how long there are no machines after a stop."""
        ...


class PoissonStops:
    """Independent sources of stops: failures, and each zone that takes all its machines at once."""

    def __init__(
        self,
        rates_per_s: Array,
        wait_s: Array,
        rng: np.random.Generator,
        saved_chance: Array | None = None,
    ) -> None:
        """Take what is random of the runs.

        Args:
            rates_per_s: [sources, runs]; the first source is failures, the others are zones.
            wait_s: mean waits [runs].
            rng: seeded.
            saved_chance: [runs] that a zone gives notice in time; None: none does.
        """
        self._rates = np.maximum(rates_per_s, 1e-300)
        self._wait_s, self._rng = wait_s, rng
        self._saved_chance = saved_chance
        self._source = np.zeros(self._rates.shape[1], dtype=int)
        self._clocks = rng.standard_exponential(self._rates.shape) / self._rates

    def next_s(self, now_s: Array, which: Array) -> Array:
        """Return the time until the first of the sources."""
        return self._clocks[:, which].min(axis=0)

    def took(self, ran_s: Array, stopped: Array, which: Array) -> None:
        """Let the clocks of all sources go on, and wind up the one that stopped the run."""
        clocks = self._clocks[:, which] - ran_s
        first = clocks.argmin(axis=0)[stopped]
        rates = self._rates[:, which][first, np.flatnonzero(stopped)]
        clocks[first, stopped] = self._rng.standard_exponential(len(first)) / rates
        self._clocks[:, which] = clocks
        self._source[which[stopped]] = first

    def saved(self, which: Array, stopped: Array) -> Array:
        """Draw which of the stops came with a notice in time: failures come without."""
        if self._saved_chance is None:
            return np.zeros(len(which), dtype=bool)
        noticed = self._rng.random(len(which)) < self._saved_chance[which]
        return stopped & (self._source[which] > 0) & noticed

    def wait_s(self, now_s: Array, which: Array) -> Array:
        """Return exponential waits."""
        return self._rng.standard_exponential(len(which)) * self._wait_s[which]


class TraceStops:
    """Recorded availability of one zone, begun at a moment of its own for every run, repeated."""

    def __init__(
        self, run_lengths: Sequence[tuple[int, int]], gap_s: float, nodes: int, start_s: Array
    ) -> None:
        """Take run lengths (machines that were to be had, samples), and when each run begins.

        Raises:
            ValueError: there never were enough machines, or always.
        """
        has = np.array([value >= nodes for value, _ in run_lengths])
        ends = np.cumsum([samples for _, samples in run_lengths]) * gap_s
        if has.all() or not has.any():
            raise ValueError("the trace has no change between enough machines and too few")
        changes = np.flatnonzero(np.diff(has))
        self._period_s = float(ends[-1])
        ups, downs = ends[changes[~has[changes]]], ends[changes[has[changes]]]
        if has[0] != has[-1]:
            ups, downs = (np.append(ups, 0.0), downs) if has[0] else (ups, np.append(downs, 0.0))
        self._ups, self._downs = np.sort(ups), np.sort(downs)
        self._start_s = start_s + self._until(self._ups, self._downs, start_s)

    def next_s(self, now_s: Array, which: Array) -> Array:
        """Return the time until there are too few machines."""
        return self._next(self._downs, self._start_s[which] + now_s)

    def took(self, ran_s: Array, stopped: Array, which: Array) -> None:
        """Do nothing: the trace goes by the clock."""

    def saved(self, which: Array, stopped: Array) -> Array:
        """Return that no stop did: the traces do not say."""
        return np.zeros(len(which), dtype=bool)

    def wait_s(self, now_s: Array, which: Array) -> Array:
        """Return the time until there are enough again."""
        return self._next(self._ups, self._start_s[which] + now_s)

    def _until(self, ups: Array, downs: Array, at_s: Array) -> Array:
        """Return 0 where there are machines, else the time until there are."""
        to_up, to_down = self._next(ups, at_s), self._next(downs, at_s)
        return np.where(to_down < to_up, 0.0, to_up)

    def _next(self, changes: Array, at_s: Array) -> Array:
        at = at_s % self._period_s
        later = np.append(changes, changes[0] + self._period_s)
        return later[np.searchsorted(changes, at, side="right")] - at
