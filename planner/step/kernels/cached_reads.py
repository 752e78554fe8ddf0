"""What memory-bound kernels find in the cache: what the kernel before them wrote."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ....profiles.curves.device_curves import DeviceCurves
from ....profiles.profile import Kernel
from .kernel_times import STREAM_KIND, KernelTable

Array = np.ndarray

_CACHE_SPEED = 4
"""Of a card's cache since Ada, times that of its memory (estimate: 4 to 5 TB/s beside the 1 TB/s of
an RTX-4090)."""
_READS_RESULTS = frozenset({"norm", "softmax", "pointwise", "reduction", "copy"})


def found_in_cache_s(
    table: KernelTable, curves: DeviceCurves, *, backward: Collection[int]
) -> Array:
    """Return [K, B] seconds in which kernels read what the cache still holds.

    Activations were written a kernel or two before: where a kernel moves x times the cache, it is
    taken to find 1 / (1 + x^2) of them there, in the backward pass half of it, since the other half
    was kept since the forward pass (estimates, borne out by BERT and ResNet-50 at ten batch sizes
    on an L40S). Weights, and results, go to memory and from it all the same. The cache itself is
    `_CACHE_SPEED` times as fast.

    Args:
        table: of the kernels.
        curves: achieved rates of the device.
        backward: rows of the backward pass.
    """
    seconds = np.zeros_like(table.moved_bytes)
    cache_bytes = curves.device.l2_bytes
    if not cache_bytes:
        return seconds
    for row, kernel in enumerate(table.kernels):
        share = _fresh_share(kernel, row in backward)
        if not share:
            continue
        moved = table.moved_bytes[row]
        found = share * table.read_bytes[row] / (1 + (moved / cache_bytes) ** 2)
        fraction = curves.memory_fraction(STREAM_KIND[kernel.kind])
        rate = fraction * curves.device.memory_bandwidth_bytes_per_s
        seconds[row] = np.minimum(found, (1 - 1 / _CACHE_SPEED) * moved) / rate
    return seconds


def _fresh_share(kernel: Kernel, is_backward: bool) -> float:
    """Return the share of what a kernel reads that others wrote just before."""
    if kernel.kind not in _READS_RESULTS or not kernel.bytes_read.grows:
        return 0.0
    return 0.5 if is_backward else 1.0
