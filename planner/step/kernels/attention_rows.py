"""Attention in 16 bits: from the measured kernels to those that a stack runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....profiles.curves.device_curves import DeviceCurves
from ....profiles.profile import Kernel
from ...software.kernel_levels import (
    attention_architecture,
    attention_slowdown,
    efficient_slowdown,
    serves_masks,
)
from ...software.stack import StackFacts
from .kernel_times import KernelTable
from .masked_attention import is_efficient, takes_mask, widest_for_cudnn

Array = np.ndarray


class AttentionRows:
    """The kernels of attention in 16 bits among others, and what decides which of a stack's run."""

    def __init__(self, kernels: Sequence[Kernel], table: KernelTable) -> None:
        self._table = table
        self.rows = [
            row for row, k in enumerate(kernels) if k.kind == "attention" and k.dtype == "16bit"
        ]
        found = [kernels[row] for row in self.rows]
        self._head_dim = np.array([k.dims["head_dim"].base for k in found]).reshape(-1, 1)
        tokens = [max(k.dims["seq_q"].base, 1.0) for k in found]
        self._tokens = np.array(tokens).reshape(-1, 1)
        self._efficient = np.array([is_efficient(k) for k in found], dtype=bool).reshape(-1, 1)
        self._widest = np.array([widest_for_cudnn(k) for k in found]).reshape(-1, 1)
        self._masked = [row for row in self.rows if takes_mask(kernels[row])]

    def to_stack(self, device_s: Array, curves: DeviceCurves, stack: StackFacts) -> None:
        """Change [K, B] seconds of measured kernels, in place, to those of a stack's."""
        device, constants, date = curves.device, stack.constants, stack.attention_date
        slowdown = attention_slowdown(
            attention_architecture(device),
            stack.name,
            date,
            constants,
            head_dim=self._head_dim,
            tokens=self._tokens,
            own_package=stack.flash_package,
        )
        if stack.torch_attention and self._efficient.any():
            left = efficient_slowdown(
                device,
                stack.name,
                date,
                constants,
                head_dim=self._head_dim,
                tokens=self._tokens,
                served=serves_masks(device, date, self._widest),
            )
            slowdown = np.where(self._efficient, left, slowdown)
        device_s[self.rows] *= slowdown
        if stack.torch_attention and self._masked:
            read_s = curves.memory_bound_s(self._table.mask_bytes(self._masked))
            served = serves_masks(device, date, self._table.dims_of(self._masked)["head_dim"])
            device_s[self._masked] += np.where(served, 0.0, read_s)
