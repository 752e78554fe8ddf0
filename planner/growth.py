"""Many sizes at many micro-batches at once: what `Affine.at` says of one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def grown(columns: Sequence[Array] | Array, micro_batches: Array) -> Array:
    """Return [sizes, B] values.

    Args:
        columns: the coefficients, in the order of an `Affine`, each of all sizes.
        micro_batches: [B] sizes of the micro-batch.
    """
    base, per_sample, per_pair, per_triple = columns
    found = base[:, None] + per_sample[:, None] * micro_batches[None, :]
    if not per_pair.any() and not per_triple.any():
        return found
    pairs = micro_batches * (micro_batches - 1) / 2
    triples = pairs * (micro_batches - 2) / 3
    return found + per_pair[:, None] * pairs + per_triple[:, None] * triples
