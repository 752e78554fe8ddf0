"""Time of the kernels of one step on one device, for every micro-batch size at once.

kernel time = max(FLOPs / achieved FLOP/s, bytes / achieved bytes/s), both read from the device's
efficiency curves (docs/curves.md). The host launches every kernel; a segment takes as long as the
slower of host and device, with a smooth change-over: (device^4 + host^4)^(1/4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..profiles.curves import DeviceCurves, StreamKind
from ..profiles.profile import Affine, Kernel, KernelKind, Phase, StepTrace
from .fusion import fuse
from .plan import Precision
from .stack import StackFacts

Array = np.ndarray

MATMUL_KINDS: frozenset[KernelKind] = frozenset({"gemm", "attention", "convolution", "rnn"})
OVERLAP_POWER = 4
"""Sharpness of the change-over between device-bound and host-bound (step-time ablation: 4 fits
launch-bound runs better than a hard maximum, a sum is far worse)."""
MEMORY_KIND: dict[KernelKind, StreamKind] = {
    "norm": "norm",
    "softmax": "softmax",
    "pointwise": "pointwise",
    "reduction": "norm",
    "embedding": "embedding",
    "copy": "copy",
    "optimizer": "optimizer",
    "other": "pointwise",
}


@dataclass(frozen=True)
class SegmentTimes:
    """Seconds per segment [S] and micro-batch [B], and how often each segment runs."""

    phase: tuple[Phase, ...]
    block: tuple[str | None, ...]
    count: Array
    compute_s: Array
    """[S, B] device time of matmul-like kernels."""
    memory_s: Array
    """[S, B] device time of memory-bound kernels."""
    total_s: Array
    """[S, B] with the host's launches."""

    def of(self, *phases: Phase) -> tuple[Array, Array, Array]:
        """Return ([B] total, [B] compute, [B] memory-bound) seconds of these phases of one step."""
        rows = np.array([p in phases for p in self.phase])
        weight = np.where(rows, self.count, 0)
        return weight @ self.total_s, weight @ self.compute_s, weight @ self.memory_s

    def micro_batch(self) -> MicroBatchTimes:
        """Return the totals of one micro-batch; recompute counts with the backward pass."""
        forward, forward_compute, forward_memory = self.of("forward")
        backward, backward_compute, backward_memory = self.of("recompute", "backward")
        return MicroBatchTimes(
            forward_s=forward,
            backward_s=backward,
            compute_s=forward_compute + backward_compute,
            memory_bound_s=forward_memory + backward_memory,
        )


@dataclass(frozen=True)
class MicroBatchTimes:
    """Seconds of one micro-batch on one device, [V] over variants (batch sizes, policies)."""

    forward_s: Array
    backward_s: Array
    compute_s: Array
    """Matmul-like kernels of both passes, device time."""
    memory_bound_s: Array
    """The other kernels of both passes, device time."""

    @staticmethod
    def stack(parts: list[MicroBatchTimes]) -> MicroBatchTimes:
        """Return the variants of several results behind one another."""
        return MicroBatchTimes(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("forward_s", "backward_s", "compute_s", "memory_bound_s")
            )
        )


def segment_times(
    trace: StepTrace,
    curves: DeviceCurves,
    *,
    precision: Precision,
    stack: StackFacts,
    micro_batches: Array,
) -> SegmentTimes:
    """Return the time of every segment on one device; the optimizer's segment is left at zero.

    Args:
        trace: the (possibly recomputed) step in the numerics class of `precision`.
        curves: achieved rates of the device.
        precision: decides the dtype of each kernel (`kernel_dtype`).
        stack: launch costs, and whether runs of memory-bound kernels are fused.
        micro_batches: [B] sizes.
    """
    segments = _fused_segments(trace) if stack.fuses else trace.segments
    device = {"compute": [], "memory": []}
    host = []
    for segment in segments:
        kernels = () if segment.phase == "optimizer" else segment.kernels
        matmul = [k for k in kernels if k.kind in MATMUL_KINDS]
        others = [k for k in kernels if k.kind not in MATMUL_KINDS]
        device["compute"].append(_matmul_s(matmul, curves, precision, micro_batches))
        device["memory"].append(_memory_bound_s(others, curves, precision, micro_batches))
        per_launch = (
            stack.backward_launch_s if segment.phase == "backward" else stack.forward_launch_s
        )
        host.append(per_launch * sum(k.launches for k in kernels))
    compute = np.array(device["compute"])
    memory = np.array(device["memory"])
    host_s = np.array(host)[:, None]
    p = OVERLAP_POWER
    total = ((compute + memory) ** p + host_s**p) ** (1 / p)
    return SegmentTimes(
        phase=tuple(s.phase for s in segments),
        block=tuple(s.block for s in segments),
        count=np.bincount(np.asarray(trace.schedule), minlength=len(segments)).astype(float),
        compute_s=compute,
        memory_s=memory,
        total_s=total,
    )


def kernel_dtype(kernel: Kernel, precision: Precision) -> str:
    """Return the dtype that a kernel computes in under a precision.

    16-bit kernels follow the precision's own format; under fp8 only linear layers run in 8 bits;
    under tf32 matmul-like fp32 kernels run on the tensor cores.
    """
    if kernel.dtype == "16bit":
        if precision == "fp8" and kernel.linear:
            return "fp8"
        return "fp16" if precision == "fp16-amp" else "bf16"
    if kernel.dtype == "fp32" and precision == "tf32" and kernel.kind in MATMUL_KINDS:
        return "tf32"
    return "fp32"


def _fused_segments(trace: StepTrace) -> tuple:
    return tuple(fuse(segment) for segment in trace.segments)


def _at(values: list[Affine], micro_batches: Array) -> Array:
    """Return [K, B] values of affine quantities."""
    table = np.array(values, dtype=np.float64).reshape(-1, 2)
    return table[:, :1] + table[:, 1:] * micro_batches[None, :]


def _matmul_s(
    kernels: list[Kernel], curves: DeviceCurves, precision: Precision, micro_batches: Array
) -> Array:
    """Return [B] seconds of matmul-like kernels."""
    total = np.zeros(len(micro_batches))
    gemms: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        dtype = kernel_dtype(kernel, precision)
        if kernel.kind == "gemm":
            gemms.setdefault(dtype, []).append(kernel)
        elif kernel.kind == "attention":
            total += _attention_s(kernel, curves, dtype, micro_batches)
        elif kernel.kind == "convolution":
            total += _convolution_s(kernel, curves, dtype, micro_batches)
        else:
            total += _rnn_s(kernel, curves, dtype, micro_batches)
    for dtype, group in gemms.items():
        m, n, k, batch = (
            _at([kernel.dims[name] for kernel in group], micro_batches)
            for name in ("m", "n", "k", "batch")
        )
        total += curves.gemm_s(m, n, k, batch=batch, dtype=dtype).sum(axis=0)
    return total


def _attention_s(kernel: Kernel, curves: DeviceCurves, dtype: str, micro_batches: Array) -> Array:
    dims = {name: value_at(kernel.dims[name], micro_batches) for name in kernel.dims}
    return curves.attention_s(
        dims["batch"],
        dims["heads"],
        dims["kv_heads"],
        dims["seq_q"],
        dims["seq_kv"],
        dims["head_dim"],
        causal=kernel.causal,
        dtype=dtype,
        backward=kernel.backward,
        flops=value_at(kernel.flops, micro_batches),
    )


def _convolution_s(kernel: Kernel, curves: DeviceCurves, dtype: str, micro_batches: Array) -> Array:
    dims = {name: value_at(kernel.dims[name], micro_batches) for name in kernel.dims}
    return curves.conv_s(
        dims["batch"],
        dims["in_channels"],
        dims["out_channels"],
        dims["kernel_elements"],
        dims["out_pixels"],
        dims["groups"],
        flops=value_at(kernel.flops, micro_batches),
        bytes=moved_bytes(kernel, micro_batches),
        dtype=dtype,
        phase="backward" if kernel.backward else "forward",
    )


def _rnn_s(kernel: Kernel, curves: DeviceCurves, dtype: str, micro_batches: Array) -> Array:
    """Return [B] seconds of a recurrent layer: its steps run one after another.

    Each step is a GEMM of (batch, 4·hidden, hidden) that has to read the recurrent weights again;
    the FLOPs not in those steps (the input projections) run as one large GEMM.
    """
    dims = {name: value_at(kernel.dims[name], micro_batches) for name in kernel.dims}
    flops = value_at(kernel.flops, micro_batches)
    step = curves.gemm_s(
        dims["batch"], 4 * dims["hidden"], dims["hidden"], batch=np.ones(1), dtype=dtype
    )
    steps = dims["steps"] * dims["layers"] * (2 if kernel.backward else 1)
    recurrent_flops = 8 * dims["batch"] * dims["hidden"] ** 2 * steps
    rest = np.maximum(flops - recurrent_flops, 0) / np.maximum(flops, 1)
    whole = curves.gemm_s(
        dims["batch"] * dims["steps"],
        4 * dims["hidden"],
        dims["input"],
        batch=np.ones(1),
        dtype=dtype,
    )
    whole_flops = 8 * dims["batch"] * dims["steps"] * dims["hidden"] * dims["input"]
    return step * steps + whole * rest * flops / np.maximum(whole_flops, 1)


def _memory_bound_s(
    kernels: list[Kernel], curves: DeviceCurves, precision: Precision, micro_batches: Array
) -> Array:
    """Return [B] seconds of memory-bound kernels."""
    total = np.zeros(len(micro_batches))
    groups: dict[tuple[StreamKind, str], list[Kernel]] = {}
    for kernel in kernels:
        key = (MEMORY_KIND[kernel.kind], kernel_dtype(kernel, precision))
        groups.setdefault(key, []).append(kernel)
    for (kind, dtype), group in groups.items():
        moved = _at([k.bytes_read for k in group], micro_batches) + _at(
            [k.bytes_written for k in group], micro_batches
        )
        total += curves.memory_bound_s(moved, kind=kind, dtype=dtype).sum(axis=0)
    return total


def value_at(affine: Affine, micro_batches: Array) -> Array:
    """Return [B] values of one affine quantity."""
    return affine.base + affine.per_sample * micro_batches


def moved_bytes(kernel: Kernel, micro_batches: Array) -> Array:
    """Return [B] bytes that a kernel reads and writes."""
    return value_at(kernel.bytes_read, micro_batches) + value_at(
        kernel.bytes_written, micro_batches
    )
