"""What a device offers a training process: peaks by precision, memory, and what to know of it."""

from __future__ import annotations

from typing import cast

from ...catalog.types import Accelerator, Dtype
from ...catalog.units import GIB
from ...catalog.vocabulary import PRECISIONS, Precision
from ...profiles.curves.device_curves import DeviceCurves
from ..plan.plan import EstimatedMemory

VISIBLE_SHARE = 0.985
"""Visible ÷ nominal memory where the visible figure is unknown: the median of the catalogue rows
that state both."""


def supported_precisions(accelerator: Accelerator) -> tuple[Precision, ...]:
    """Return the precisions that a device has fast arithmetic for."""
    return tuple(p for p in PRECISIONS if _dtype(p) in accelerator.peak_flops)


def peak_flops(accelerator: Accelerator, precision: Precision) -> float | None:
    """Return the dense peak, FLOP/s, of the dtype a precision computes in; None without units.

    fp16 without units of its own computes in fp32 (`Accelerator.multiplies_fp16_in_fp32`).
    """
    dtype = _dtype(precision)
    if dtype == "fp16" and accelerator.multiplies_fp16_in_fp32:
        dtype = "fp32"
    return accelerator.peak_flops.get(dtype)


def _dtype(precision: Precision) -> Dtype:
    return cast(Dtype, precision.removesuffix("-amp"))


def capacity_bytes(accelerator: Accelerator) -> float:
    """Return the memory that a process can use on one device."""
    if accelerator.memory_visible_bytes is not None:
        return accelerator.memory_visible_bytes
    return VISIBLE_SHARE * accelerator.memory_bytes


def memory_notes(accelerator: Accelerator, peak: EstimatedMemory) -> list[str]:
    """Return what the user should know about a memory verdict."""
    notes = []
    if accelerator.memory_visible_bytes is None:
        notes.append(
            f"memory visible on {accelerator.name} is unknown; taken as"
            f" {VISIBLE_SHARE:.1%} of {accelerator.memory_bytes / GIB:.0f} GiB"
        )
    if peak.value <= peak.capacity < peak.high:
        notes.append("close to the memory limit: allocator retries can slow the step")
    return notes


def device_notes(accelerator: Accelerator, curves: DeviceCurves, dtype: str) -> list[str]:
    """Return what the user should know about a device: borrowed curves, software it needs."""
    notes = []
    if curves.basis_of("gemm", dtype) == "derived":
        relative = curves.relative_of("gemm", dtype)
        notes.append(f"kernel times of {accelerator.name} are scaled from {relative}")
    if accelerator.name.startswith("Gaudi"):
        notes.append(
            f"{accelerator.name} runs torch through Intel's Gaudi software: the file's CUDA calls"
            ' must become device "hpu"'
        )
    return notes
