"""Candidates of the split layouts as arrays, and what they need."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Fitting(NamedTuple):
    """Candidates that fit: their row, recompute policy, micro-batch and accumulation."""

    row: np.ndarray
    recompute: np.ndarray
    size: np.ndarray
    accum: np.ndarray
    place: np.ndarray
    """Where their stage's seconds are."""
    kept_place: np.ndarray
    """Where they are for the layers that are not recomputed."""
    share: np.ndarray
    """Part of the layers under that policy; the others keep their activations."""
    base: np.ndarray
    """Which of the bases they run under."""

    @classmethod
    def none(cls) -> Fitting:
        """Return no candidates."""
        whole, real = np.empty(0, dtype=int), np.empty(0)
        return cls(whole, whole, whole, whole, whole, whole, real, whole)

    def at(self, places: np.ndarray) -> Fitting:
        """Return the candidates in these places."""
        return Fitting(*(column[places] for column in self))

    def beside(self, other: Fitting) -> Fitting:
        """Return these candidates with others behind them."""
        return Fitting(*(np.concatenate(both) for both in zip(self, other, strict=True)))

    def seconds(self, *tables: np.ndarray) -> list[np.ndarray]:
        """Return what each table of stages says of the candidates."""
        some = np.flatnonzero(self.share < 1)
        share, place = self.share[some], self.kept_place[some]
        found = []
        for table in tables:
            taken = table[self.place]
            kept = table[place]
            taken[some] = kept + share * (taken[some] - kept)
            found.append(taken)
        return found


class Needed(NamedTuple):
    """What rows [N] need under each recompute policy [R] with each micro-batch [B]."""

    accum: np.ndarray
    """[N, B]"""
    peaks: np.ndarray
    """[N, R, B] bytes; infinite where the micro-batches do not make the global batch."""
    least: np.ndarray
    """[N] the smallest of them."""
    indivisible: np.ndarray
    """[N] how many do not make the global batch."""
