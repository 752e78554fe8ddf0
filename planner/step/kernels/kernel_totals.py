"""Time of the kernels of one step on one device, for every micro-batch size at once.

kernel time = max(FLOPs / achieved FLOP/s, bytes / achieved bytes/s), both read from the device's
efficiency curves (docs/curves.md). The host launches every kernel; a segment takes as long as the
slower of host and device, with a smooth change-over: (device^4 + host^4)^(1/4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

import numpy as np

from ....catalog.types import Accelerator
from ....catalog.vocabulary import Precision, Recompute
from ....profiles.curves.device_curves import DeviceCurves
from ....profiles.profile import Kernel, KernelKind, Phase, Segment, StepTrace
from ...parallelism.column_row_parallel import SPLIT_EXPERTS, is_expert_product
from ...software.fusion import REREAD, Outliving, fuse
from ...software.kernel_levels import has_fast_cache, in_step
from ...software.stack import StackFacts
from ...software.versions import fuses_experts, lacks_grouped_kernels, picks_layouts
from .attention_rows import AttentionRows
from .cached_reads import found_in_cache_s
from .kernel_times import MATMUL_KINDS, KernelTable

Array = np.ndarray

OVERLAP_POWER = 4
"""Sharpness of the change-over between device-bound and host-bound (step-time ablation: 4 fits
launch-bound runs better than a hard maximum, a sum is far worse)."""


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

    def longer_by(self, forward_s: float, backward_s: float) -> MicroBatchTimes:
        """Return the same with further memory-bound kernels in each pass."""
        return replace(
            self,
            forward_s=self.forward_s + forward_s,
            backward_s=self.backward_s + backward_s,
            memory_bound_s=self.memory_bound_s + forward_s + backward_s,
        )

    @staticmethod
    def weighted(parts: Sequence[MicroBatchTimes], shares: Sequence[float]) -> MicroBatchTimes:
        """Return the mean of several results of equal shape, by their shares."""
        weights = np.array(shares)
        return MicroBatchTimes(
            *(
                weights @ np.array([getattr(part, name) for part in parts])
                for name in ("forward_s", "backward_s", "compute_s", "memory_bound_s")
            )
        )

    def between(self, one: slice, other: slice, share: Array) -> MicroBatchTimes:
        """Return variants between two ranges of these, which the share of the other says.

        Args:
            one: variants, [B].
            other: as many.
            share: [..., B], from 0 (the one) to 1 (the other).
        """

        def at(name: str) -> Array:
            column = getattr(self, name)
            return column[one] + share * (column[other] - column[one])

        return MicroBatchTimes(*(at(field.name) for field in fields(self)))

    @staticmethod
    def stack(parts: Sequence[MicroBatchTimes]) -> MicroBatchTimes:
        """Return the variants of several results behind one another."""
        return MicroBatchTimes(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("forward_s", "backward_s", "compute_s", "memory_bound_s")
            )
        )


class StepKernels:
    """The kernels of several traces of one model, laid out for evaluation on any device.

    Equal kernels (the recomputed forward is the forward again) are evaluated once.

    Args:
        traces: with the same kernels, or a rank's parts of them, in their places.
        micro_batches: sizes.
        fused: what outlives the fused kernels of each trace; None where nothing fuses.
    """

    def __init__(
        self,
        traces: Sequence[StepTrace],
        micro_batches: Array,
        *,
        fused: Sequence[Outliving] | None = None,
    ) -> None:
        self._traces = traces
        self._segments = [
            running_segments(trace, fused[at] if fused else None) for at, trace in enumerate(traces)
        ]
        segments = list(chain.from_iterable(self._segments))
        kernels = _distinct(segments)
        rows = {id(kernel): row for row, kernel in enumerate(kernels)}
        self._backward = frozenset(
            rows[id(kernel)]
            for segment in segments
            if segment.phase == "backward"
            for kernel in segment.kernels
        )
        self._table = KernelTable(kernels, micro_batches)
        self._rows: dict[KernelKind, list[int]] = {}
        for row, kernel in enumerate(kernels):
            self._rows.setdefault(kernel.kind, []).append(row)
        self._attention = AttentionRows(kernels, self._table)
        self._matmul = np.array([k.kind in MATMUL_KINDS for k in kernels], dtype=bool)
        self._reduces = [row for row, k in enumerate(kernels) if REREAD in k.dims]
        self._linear = [row for row, k in enumerate(kernels) if k.linear and k.dtype == "16bit"]
        self._expert = [row for row, k in enumerate(kernels) if is_expert_product(k)]
        # Where a rank holds one expert nothing is sorted, and its product is a plain one.
        self._grouped = [row for row in self._expert if kernels[row].dims["batch"].base > 1]
        self._held = np.array([[kernels[row].dims["batch"].base] for row in self._expert])
        self._dispatched = [
            rows[id(kernel)]
            for segment in segments
            if any(SPLIT_EXPERTS in kernel.dims for kernel in segment.kernels)
            for kernel in segment.kernels
            if kernel.kind == "embedding"
        ]
        self._dense = [row for row, k in enumerate(kernels) if _is_dense_convolution(k)]
        self._dense_channels_last = [
            row for row in self._dense if kernels[row].op.endswith(".channels_last")
        ]
        self._laid_out = [
            _laid_out(trace, own, rows, len(kernels))
            for trace, own in zip(self._traces, self._segments, strict=True)
        ]

    def times(
        self,
        curves: DeviceCurves,
        *,
        precision: Precision,
        stack: StackFacts,
        factors: Mapping[KernelKind, float] | None = None,
    ) -> list[SegmentTimes]:
        """Return the segment times of every trace on one device.

        Args:
            curves: achieved rates of the device.
            precision: decides the dtype of each kernel.
            stack: launch costs, and how kernels in a step differ from those measured alone.
            factors: what a measurement multiplies the time of each kernel kind by.
        """
        device_s = self._device_s(curves, precision, stack)
        fused = _fuses_experts(curves.device, precision, stack)
        for kind, factor in (factors or {}).items():
            device_s[self._rows.get(kind, [])] *= factor
        matmul = device_s * self._matmul[:, None]
        times = []
        for one in self._laid_out:
            compute, every = one.uses @ matmul, one.uses @ device_s
            per_launch = np.where(one.is_backward, stack.backward_launch_s, stack.forward_launch_s)
            host_s = per_launch * one.launches
            host_s = host_s * (stack.constants["serial_host"] if stack.launches_serially else 1)
            host_s = host_s + stack.recompute_host_s.get(one.recompute, 0.0) * one.is_recomputed
            p = 1 if stack.launches_serially else OVERLAP_POWER
            total = (every**p + host_s**p) ** (1 / p)
            if self._expert and not fused:
                total = np.maximum(total, self._paced_by_experts(one, every, stack))
            times.append(
                SegmentTimes(
                    phase=one.phase,
                    block=one.block,
                    count=one.count,
                    compute_s=compute,
                    memory_s=every - compute,
                    total_s=total,
                )
            )
        return times

    def _paced_by_experts(self, one: _LaidOut, every: Array, stack: StackFacts) -> Array:
        """Return [S, B] the seconds of layers with experts where the host may set their pace.

        Args:
            one: the segments of a trace; 0 is returned for those without experts.
            every: [S, B] seconds of their kernels on the device.
            stack: what the host takes for them.
        """
        host, uses = stack.expert_host, one.uses[:, self._expert]
        backward = np.where(one.is_backward, stack.constants["backward_launch"], 1.0)
        launched_s = backward * host.launch_s * one.launches
        host_s = launched_s + host.product_s * (uses @ self._held)
        paced = (every**OVERLAP_POWER + host_s**OVERLAP_POWER) ** (1 / OVERLAP_POWER)
        if host.waits:
            paced = np.maximum(paced, np.where(one.is_backward, 0.0, every + launched_s))
        return np.where(uses.any(axis=1, keepdims=True), paced, 0.0)

    def kind_seconds(
        self, curves: DeviceCurves, *, precision: Precision, stack: StackFacts
    ) -> dict[KernelKind, float]:
        """Return device seconds of each kernel kind in one step of the first trace and size."""
        first = self._laid_out[0]
        seconds = first.count @ first.uses * self._device_s(curves, precision, stack)[:, 0]
        return {kind: float(seconds[rows].sum()) for kind, rows in self._rows.items()}

    def _device_s(self, curves: DeviceCurves, precision: Precision, stack: StackFacts) -> Array:
        """Return [K, B] seconds of every kernel on the device, without the host."""
        device, constants = curves.device, stack.constants
        cast_bytes = constants["fp8_cast_bytes" + (".megatron" if stack.name == "megatron" else "")]
        device_s = self._table.device_s(
            curves, precision, cast_bytes=cast_bytes, odd_widths=stack.odd_widths
        )
        if has_fast_cache(device):
            found_s = found_in_cache_s(self._table, curves, backward=self._backward)
            device_s -= constants["cached_reads"] * found_s
        self._attention.to_stack(device_s, curves, stack)
        device_s[self._linear] *= stack.narrow_products
        if stack.reductions_apart and self._reduces:
            again = self._table.dims_of(self._reduces)[REREAD]
            device_s[self._reduces] += curves.memory_bound_s(again)
        software = {"precision": precision, "stack": stack.name, "date": stack.date}
        for kind, rows in self._rows.items():
            device_s[rows] *= in_step(device, kind, constants, **software)
        copy_step = in_step(device, "copy", constants, **software)
        compiled = picks_layouts(stack.name, stack.date)
        if device.vendor == "NVIDIA":
            native = self._dense if compiled else self._dense_channels_last
            device_s[native] *= constants["convolution_step.channels_last"]
        if not compiled:
            device_s += self._table.transposing_s(curves, precision, constants, copy_step=copy_step)
        if lacks_grouped_kernels(stack.name, stack.date):
            device_s += self._table.general_transposing_s(curves, precision, constants)
        passes, attends_in_fp8 = stack.routing_passes, stack.fp8_attention and precision == "fp8"
        if self._expert and _fuses_experts(device, precision, stack):
            passes, attends_in_fp8 = constants["routing_passes.fused"], True
            device_s[self._dispatched] = 0.0
        if attends_in_fp8:
            device_s[self._attention.rows] *= constants["attention_fp8"]
        if self._grouped:
            moved = curves.memory_bound_s(self._table.row_bytes(self._grouped), kind="copy")
            device_s[self._grouped] += passes * copy_step * moved
        return device_s


def _fuses_experts(device: Accelerator, precision: Precision, stack: StackFacts) -> bool:
    able = fuses_experts(device.arch, stack.name, stack.date, precision)
    return able and not stack.unfused_experts


def running_segments(trace: StepTrace, fused: Outliving | None) -> tuple[Segment, ...]:
    """Return the segments as they run; the optimizer's kernels are accounted for elsewhere.

    Args:
        trace: the step, or a rank's part of it.
        fused: what outlives its fused kernels; None where nothing fuses.
    """
    segments = trace.segments
    if fused is not None:
        segments = tuple(map(fuse, segments, fused))
    return tuple(
        s.model_copy(update={"kernels": ()}) if s.phase == "optimizer" else s for s in segments
    )


def _is_dense_convolution(kernel: Kernel) -> bool:
    """Return whether it is a convolution in 16 bits whose outputs see every input channel.

    In channels-last order they have a level of their own on NVIDIA devices. In NCHW order
    cuDNN's tensor-core kernels scatter results (nhwc2nchw kernels, tensorflow/tensorflow#15897)
    beside the turning around, which is counted by itself. Nobody published TF32 in that order.
    """
    return (
        kernel.kind == "convolution" and kernel.dtype == "16bit" and max(kernel.dims["groups"]) == 1
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _LaidOut:
    """What no device changes about the segments [S] of one trace."""

    phase: tuple[Phase, ...]
    block: tuple[str | None, ...]
    count: Array
    """[S] how often each runs in a step."""
    uses: Array
    """[S, K] how often each launches each kernel."""
    launches: Array
    """[S, 1] of the host, in one run of a segment."""
    is_backward: Array
    """[S, 1]"""
    recompute: Recompute
    is_recomputed: Array
    """[S, 1] whether it is a pass of a recomputed block: forward, or backward, beside whose kernels
    the host prepares what the block before it runs again."""


def _distinct(segments: Iterable[Segment]) -> list[Kernel]:
    """Return the kernels that are evaluated, each once."""
    every = {id(kernel): kernel for segment in segments for kernel in segment.kernels}
    return list(every.values())


def _laid_out(
    trace: StepTrace, segments: Sequence[Segment], rows: dict[int, int], kernels: int
) -> _LaidOut:
    uses = np.zeros((len(segments), kernels))
    for i, segment in enumerate(segments):
        for kernel in segment.kernels:
            uses[i, rows[id(kernel)]] += 1
    return _LaidOut(
        phase=tuple(s.phase for s in segments),
        block=tuple(s.block for s in segments),
        count=np.bincount(np.asarray(trace.schedule), minlength=len(segments)).astype(float),
        uses=uses,
        launches=np.array([[sum(kernel.launches for kernel in s.kernels)] for s in segments]),
        is_backward=np.array([[s.phase == "backward"] for s in segments]),
        recompute=trace.recompute,
        is_recomputed=np.array([[_is_recomputed(s, trace.recompute)] for s in segments]),
    )


def _is_recomputed(segment: Segment, recompute: Recompute) -> bool:
    passes = segment.phase in ("forward", "backward")
    return recompute != "none" and segment.block is not None and passes
