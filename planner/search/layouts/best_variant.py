"""The variant of every layout that becomes a candidate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SMALLER_COSTS = 0.01
"""Share of the rate that a smaller micro-batch, which holds less memory, may cost."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best variant of every layout, [L]: the fastest, or nearly so with a smaller micro-batch.

    Variants that may run out of memory are taken where a layout has no others.
    """

    column: np.ndarray
    rate: np.ndarray
    """Samples per second."""
    is_safe: np.ndarray
    fitting: np.ndarray
    """How many variants fit."""

    @classmethod
    def of(
        cls, rate: np.ndarray, fits: np.ndarray, is_safe: np.ndarray, micro_batch: np.ndarray
    ) -> Best:
        """Return the best of variants.

        Args:
            rate: [L, V] samples per second.
            fits: [L, V] whether memory is predicted to suffice.
            is_safe: [L, V] whether it does but for the risk that is accepted.
            micro_batch: [V] sizes.
        """
        any_safe = np.asarray(is_safe.any(axis=1))
        rate = np.where(np.where(any_safe[:, None], is_safe, fits), rate, -np.inf)
        near = rate >= (1 - SMALLER_COSTS) * rate.max(axis=1, keepdims=True)
        # Of nearly equal ones the smallest micro-batch, and of its policies the fastest.
        smallest = np.where(near, micro_batch, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
        column = np.where(near & (micro_batch == smallest), rate, -np.inf).argmax(axis=1)
        return cls(
            column=column,
            rate=np.take_along_axis(rate, column[:, None], axis=1)[:, 0],
            is_safe=any_safe,
            fitting=fits.sum(axis=1),
        )
