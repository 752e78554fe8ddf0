"""Device memory that no trace shows: the context, library workspaces, communicator buffers."""

from __future__ import annotations

from ...catalog.types import Accelerator
from ...catalog.units import GIB, MIB
from ...catalog.vocabulary import Stack
from ..plan.layout import Layout
from ..plan.setup import Date

CONTEXT_BYTES = int(0.45 * GIB)
"""CUDA context with lazily loaded kernels: 250-450 MiB seen (pytorch#86509); the upper end."""
HOPPER_CONTEXT_BYTES = int(0.9 * GIB)
"""The same on Hopper and later: 0.5 GiB more than Ada in one program (milabench, 2024-25)."""
ROCM_CONTEXT_BYTES = int(2.0 * GIB)
"""ROCm's context: 1.6 GiB more than CUDA's on Ada in one program (milabench, 2024-25)."""
LAZY_KERNELS: Date = (2022, 10)
"""torch 1.13 on CUDA 11.7 loads kernels when they first run; all of them before."""
CUDA_11: Date = (2020, 10)
EAGER_CONTEXT_BYTES = int(1.3 * GIB)
"""CUDA 11 with every kernel loaded (transformers, docs/source/en/perf_train_gpu_one.md, 2022)."""
EAGER_CONTEXT_BEFORE_AMPERE_BYTES = 1111 * MIB
"""The same without Ampere's libraries: 1,113 MiB with one tensor on a V100 of 16 or 32 GB
(bigscience-workshop/bigscience 9e64ede, experiments/tr3m-1B3.md, 2021-12); its block is 2 MiB."""
CUDA_10_CONTEXT_BYTES = int(0.55 * GIB)
"""CUDA 10 with every kernel loaded: 1,847 MiB with a model of 1,278 MiB and nothing else on a Titan
RTX (lambdal/deeplearning-benchmark, monitor log of BERT-large, 2020-03)."""
CUBLAS_WORKSPACE_BYTES = int(8.125 * MIB)
"""cuBLAS workspace per handle and stream (torch CUBLAS_WORKSPACE_CONFIG default :4096:2:16:8)."""
CUBLAS_WORKSPACE_HOPPER_BYTES = 32 * MIB
"""The same on Hopper and later (torch aten/src/ATen/cuda/CublasHandlePool.cpp)."""
MULTIPLYING_THREADS = 2
"""That of the forward pass and autograd's own: each has a handle, and so a workspace."""
POOLED_WORKSPACES: Date = (2023, 3)
"""torch 2.0 takes them from its allocator's pool (pytorch/pytorch#83461; 1.13 did not, #95668),
where they keep blocks apart; cuBLAS asked the driver before."""
COMMUNICATOR_BYTES = int(0.6 * GIB)
"""NCCL buffers of one communicator: 0.5-0.7 GB seen (nccl#964, nccl#864, nccl#1685)."""


def framework_bytes(
    accelerator: Accelerator, *, communicators: int, date: Date | None = None
) -> float:
    """Return bytes that a process holds beside its tensors on one device.

    The workspaces, though torch has them in its allocator's pool, are among them.

    Args:
        accelerator: the device; Hopper and later have larger cuBLAS workspaces.
        communicators: NCCL communicators that the layout opens on this rank (0 on one device).
        date: of the software; None is today.
    """
    workspaces = MULTIPLYING_THREADS * workspace_bytes(accelerator)
    return context_bytes(accelerator, date) + workspaces + communicators * COMMUNICATOR_BYTES


def workspace_bytes(accelerator: Accelerator) -> int:
    """Return bytes that matrix products take as workspace in one thread.

    ROCm's larger ones are in its context, of which nobody measured the parts.
    """
    modern = accelerator.arch.startswith(("Hopper", "Blackwell"))
    return CUBLAS_WORKSPACE_HOPPER_BYTES if modern else CUBLAS_WORKSPACE_BYTES


def context_bytes(accelerator: Accelerator, date: Date | None = None) -> float:
    """Return bytes of the driver's context with the kernels that the software loads into it."""
    if accelerator.vendor == "AMD":
        return ROCM_CONTEXT_BYTES
    if date is not None and date < LAZY_KERNELS:
        return _eager_context_bytes(accelerator, date)
    modern = accelerator.arch.startswith(("Hopper", "Blackwell"))
    return HOPPER_CONTEXT_BYTES if modern else CONTEXT_BYTES


def _eager_context_bytes(accelerator: Accelerator, date: Date) -> float:
    if date < CUDA_11:
        return CUDA_10_CONTEXT_BYTES
    older = accelerator.arch in ("Kepler", "Maxwell", "Pascal", "Volta", "Turing")
    return EAGER_CONTEXT_BEFORE_AMPERE_BYTES if older else EAGER_CONTEXT_BYTES


def communicators(layout: Layout, stack: Stack = "torch-eager") -> int:
    """Return how many NCCL communicators a rank opens: one for each dimension it is part of.

    Megatron adds one for all ranks of a model (its gradient norm) and, between stages, one to each
    neighbour and one for the tied embeddings (megatron/mpu/initialize.py, DeepSpeed
    runtime/pipe/p2p.py).
    """
    found = sum(
        degree > 1
        for degree in (layout.data, layout.tensor, layout.pipeline, layout.context, layout.expert)
    )
    if layout.zero_stage == 3 and layout.replicas > 1 and layout.shard > 1:
        found += 1
    if stack == "megatron":
        found += 2 * (layout.pipeline > 1) + (layout.pipeline > 1 and layout.tensor > 1)
    return found
