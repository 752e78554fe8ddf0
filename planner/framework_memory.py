"""Device memory that no trace shows: the context, library workspaces, communicator buffers."""

from __future__ import annotations

from ..catalog.types import Accelerator
from ..catalog.units import GIB, MIB

CONTEXT_BYTES = int(0.45 * GIB)
"""CUDA context with lazily loaded kernels: 250-450 MiB seen (pytorch#86509); the upper end."""
CUBLAS_WORKSPACE_BYTES = int(8.125 * MIB)
"""cuBLAS workspace per handle and stream (torch CUBLAS_WORKSPACE_CONFIG default :4096:2:16:8)."""
CUBLAS_WORKSPACE_HOPPER_BYTES = 32 * MIB
"""The same on Hopper and later (torch aten/src/ATen/cuda/CublasHandlePool.cpp)."""
COMMUNICATOR_BYTES = int(0.6 * GIB)
"""NCCL buffers of one communicator: 0.5-0.7 GB seen (nccl#964, nccl#864, nccl#1685)."""


def framework_bytes(accelerator: Accelerator, *, communicators: int) -> float:
    """Return bytes that a process holds outside the allocator's pool on one device.

    Args:
        accelerator: the device; Hopper and later have larger cuBLAS workspaces.
        communicators: NCCL communicators that the layout opens on this rank (0 on one device).
    """
    modern = accelerator.arch in ("Hopper", "Blackwell")
    workspace = CUBLAS_WORKSPACE_HOPPER_BYTES if modern else CUBLAS_WORKSPACE_BYTES
    return CONTEXT_BYTES + workspace + communicators * COMMUNICATOR_BYTES
