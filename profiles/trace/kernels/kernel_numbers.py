"""The numbers of one kernel: at one micro-batch size, and as the line through two."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...profile import Affine, DtypeClass, Kernel, KernelKind


@dataclass(frozen=True, kw_only=True)
class Counts:
    """One kernel at one micro-batch size; the numbers of a `Kernel`."""

    kind: KernelKind
    op: str
    dims: dict[str, int] = field(default_factory=dict)
    dtype: DtypeClass
    flops: int = 0
    bytes_read: int
    bytes_written: int
    launches: int = 1
    causal: bool = False
    backward: bool = False


def affine(small: Counts, large: Counts, sizes: tuple[int, int]) -> dict[str, Any]:
    """Return the numbers of a `Kernel` from its counts at two micro-batch sizes."""
    return {
        "kind": small.kind,
        "op": small.op,
        "dtype": small.dtype,
        "causal": small.causal,
        "backward": small.backward,
        "launches": small.launches,
        "dims": {key: line(value, large.dims[key], sizes) for key, value in small.dims.items()},
        "flops": line(small.flops, large.flops, sizes),
        "bytes_read": line(small.bytes_read, large.bytes_read, sizes),
        "bytes_written": line(small.bytes_written, large.bytes_written, sizes),
    }


def line(small: int, large: int, sizes: tuple[int, int]) -> Affine:
    """Return the affine law through two readings; whole numbers wherever they are."""
    rise, run = large - small, sizes[1] - sizes[0]
    slope = rise // run if rise % run == 0 else rise / run
    return Affine(small - slope * sizes[0], slope)


def make_kernel(numbers: dict[str, Any], *, module: str, linear: bool) -> Kernel:
    """Return the `Kernel` of these numbers, launched by this module."""
    return Kernel(**numbers, module=module, linear=linear and numbers["kind"] == "gemm")
