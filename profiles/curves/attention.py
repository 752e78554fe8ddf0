"""Time of fused attention from measured forward kernels (flash attention or its like)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from .files import MASKED_START, Array, AttentionGrid
from .gemm import interpolate

BACKWARD_OVER_FORWARD = 3.15
"""Backward time over forward time: 2.5 times the FLOPs (five matrix products for two) at 0.79 of
the forward's rate. Fitted to end-to-end training steps; backward kernels are not measured."""
BACKWARD_FLOPS_OVER_FORWARD = 2.5
_KERNEL_WIDTHS = np.array([32.0, 64.0, 96.0, 128.0, 192.0, 256.0])
"""Head widths that kernels are built for: others run the next wider one, padded (FlashAttention-2
and 3, `HEADDIM_SWITCH` of their static_switch.h, which torch compiles)."""
_WIDTH_STEP = 8
"""Wider heads than those are taken to be padded to it."""
_BLOCK = 128.0
"""Rows that a causal kernel computes whole although half of them are masked."""
_UNMASKED = 0.92
"""Attention without a mask against twice the causal kernel: long sequences take .92 of it, 512 and
1,024 tokens .79 (medians of both forms of FlashAttention-2 to 4 and cuDNN on A100, H100, B200,
GB200, GB300), for no tile is idle and all rows are equally long."""
_NARROW_HEAD = 16.0
"""Head dimensions' worth of softmax work per score, for heads narrower than any measured."""


@dataclass(frozen=True, eq=False)
class AttentionShape:
    """Fused attention of these sizes.

    Compared by identity, so that many devices share what is looked up for it once.
    """

    batch: Array
    heads: Array
    kv_heads: Array
    seq_q: Array
    seq_kv: Array
    head_dim: Array
    causal: bool = field(kw_only=True)

    @cached_property
    def forward_flops(self) -> Array:
        """FLOPs of the two forward products; causal counts half."""
        whole = 4.0 * self.batch * self.heads * self.seq_q * self.seq_kv * self.head_dim
        return whole * (0.5 if self.causal else 1.0)


@lru_cache(maxsize=256)
def forward_attention_s(grids: tuple[AttentionGrid, ...], shape: AttentionShape) -> Array:
    """Return the forward seconds of fused attention on the device that `grids` were measured on.

    Above the measured sizes the time per FLOP stays that of the nearest measured size; below them
    tiles and bytes shrink (`_shorter`).
    """
    head_dim = _kernel_width(shape.head_dim)
    grids = _around(grids, head_dim)
    batch_heads, group = shape.batch * shape.heads, shape.heads / shape.kv_heads
    seq = np.sqrt(shape.seq_q * shape.seq_kv)
    log_times = np.stack([_log_causal_s(grid, batch_heads, seq, group) for grid in grids])
    dims = np.array([grid.head_dim for grid in grids], dtype=float)
    time = np.exp(_along_head_dim(dims, log_times, head_dim))
    if shape.causal:
        return time
    share = 2 * _UNMASKED / (1 + MASKED_START / np.maximum(seq, MASKED_START))
    return time * np.maximum(share, 1.0)


def _kernel_width(head_dim: Array) -> Array:
    """Return the head width of the kernel that runs heads of this one."""
    beyond = np.ceil(head_dim / _WIDTH_STEP) * _WIDTH_STEP
    place = np.searchsorted(_KERNEL_WIDTHS, head_dim)
    built = _KERNEL_WIDTHS[np.minimum(place, len(_KERNEL_WIDTHS) - 1)]
    return np.where(head_dim > _KERNEL_WIDTHS[-1], beyond, built)


def _around(grids: tuple[AttentionGrid, ...], head_dim: Array) -> tuple[AttentionGrid, ...]:
    """Return the grids whose head dimensions enclose those asked for."""
    dims = np.array([grid.head_dim for grid in grids])
    first = max(int(np.searchsorted(dims, head_dim.min(), side="right")) - 1, 0)
    last = min(int(np.searchsorted(dims, head_dim.max())), len(dims) - 1)
    return grids[min(first, last) : last + 1]


def _log_causal_s(grid: AttentionGrid, batch_heads: Array, seq: Array, group: Array) -> Array:
    inside = tuple(
        np.clip(value, axis[0], axis[-1])
        for value, axis in ((batch_heads, grid.batch_heads), (seq, grid.seq), (group, grid.group))
    )
    log_time = interpolate((grid.batch_heads, grid.seq, grid.group), grid.log_time, inside)
    beyond = np.maximum(batch_heads / inside[0], 1) * np.maximum(seq / inside[1], 1) ** 2
    return log_time + np.log(beyond * _shorter(seq, float(grid.seq[0])))


def _shorter(seq: Array, shortest: float) -> Array:
    """Return the time of a sequence over that of the shortest measured one, 1 above it.

    What is left is the larger of the tiles still to be computed (those under the diagonal) and of
    the bytes still to be moved, which are linear in the sequence.
    """
    tiles, most = np.ceil(seq / _BLOCK), np.ceil(shortest / _BLOCK)
    computed = tiles * (tiles + 1) / (most * (most + 1))
    return np.where(seq < shortest, np.maximum(computed, seq / shortest), 1.0)


def _along_head_dim(dims: Array, log_times: Array, head_dim: Array) -> Array:
    """Return log seconds at `head_dim` from those at the measured `dims` (first axis)."""
    result = np.broadcast_to(log_times[0], np.broadcast_shapes(log_times[0].shape, head_dim.shape))
    below = np.log((head_dim + _NARROW_HEAD) / (dims[0] + _NARROW_HEAD))
    result = np.where(head_dim <= dims[0], result + below, result)
    for i in range(len(dims) - 1):
        share = np.log(head_dim / dims[i]) / np.log(dims[i + 1] / dims[i])
        between = log_times[i] * (1 - share) + log_times[i + 1] * share
        result = np.where((head_dim > dims[i]) & (head_dim <= dims[i + 1]), between, result)
    above = log_times[-1] + np.log(head_dim / dims[-1])
    return np.where(head_dim > dims[-1], above, result)
