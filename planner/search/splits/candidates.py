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

    def beside(self, other: Fitting) -> Fitting:
        """Return these candidates with others behind them."""
        return Fitting(*(np.concatenate(both) for both in zip(self, other, strict=True)))

    def seconds(self, table: np.ndarray) -> np.ndarray:
        """Return what a table of stages says of the candidates."""
        taken = table[self.place]
        some = np.flatnonzero(self.share < 1)
        kept = table[self.kept_place[some]]
        taken[some] = kept + self.share[some] * (taken[some] - kept)
        return taken


class Needed(NamedTuple):
    """What rows [N] need under each recompute policy [R] with each micro-batch [B]."""

    accum: np.ndarray
    """[N, B]"""
    peaks: np.ndarray
    """[N, R, B] bytes; infinite where the micro-batches do not make the global batch."""
    least: np.ndarray
    """[N] the smallest of them."""
    indivisible: int
    """How many do not make the global batch."""
