"""How long the copies beside the collectives of tensor ranks take (`software/collective_copies`).

They stand between a collective and the product that waits for it, so that nothing hides them.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from ...profiles.curves.device_curves import DeviceCurves
from ..parallelism.rank_trace import SplitTrace

Array = np.ndarray


def copied_s(split: SplitTrace, curves: DeviceCurves, micro_batches: Array) -> Array:
    """Return [segments, B] seconds of copies measured alone.

    Args:
        split: a rank's share, with what it exchanges.
        curves: achieved rates of the device.
        micro_batches: [B] sizes.
    """
    copies, moved_bytes = _copied(split, tuple(float(size) for size in micro_batches))
    if not copies.any():
        return np.zeros_like(copies)
    each_s = curves.memory_bound_s(moved_bytes / np.maximum(copies, 1), kind="copy")
    return copies * each_s


_Copied = tuple[Array, Array]
_known: WeakKeyDictionary[SplitTrace, dict[tuple[float, ...], _Copied]] = WeakKeyDictionary()
"""What was counted, as long as the ranks' shares are kept elsewhere."""


def _copied(split: SplitTrace, micro_batches: tuple[float, ...]) -> _Copied:
    """Return ([segments, B] copies, the bytes that all of them move)."""
    known = _known.setdefault(split, {})
    if micro_batches not in known:
        known[micro_batches] = _counted(split, micro_batches)
    return known[micro_batches]


def _counted(split: SplitTrace, micro_batches: tuple[float, ...]) -> _Copied:
    shape = len(split.exchanges), len(micro_batches)
    copies, moved_bytes = np.zeros(shape), np.zeros(shape)
    for row, exchanges in enumerate(split.exchanges):
        for one in exchanges:
            for column, size in enumerate(micro_batches):
                times = one.copied_of_one if size == 1 else one.copied
                copies[row, column] += one.count * (times > 0)
                moved_bytes[row, column] += one.count * times * one.total_bytes.at(size)
    return copies, moved_bytes
