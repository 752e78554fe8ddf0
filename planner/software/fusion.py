"""What a compiler makes of a segment: runs of memory-bound kernels become one kernel each."""

from __future__ import annotations

from ...profiles.profile import Affine, Kernel, KernelKind, Segment

FUSIBLE: frozenset[KernelKind] = frozenset({"pointwise", "norm", "softmax", "reduction", "copy"})
"""Kinds that Inductor and XLA merge; GEMM, attention and convolution stay apart."""


def fuse(segment: Segment) -> Segment:
    """Return the segment with every run of fusible kernels merged into one.

    The result of each kernel but the last of a run is neither written nor read back: the run moves
    the bytes of its parts less twice those results, and never less than it writes at its end plus
    the largest read.
    """
    if segment.phase == "optimizer":
        return segment
    fused: list[Kernel] = []
    run: list[Kernel] = []
    for kernel in (*segment.kernels, None):
        if kernel is not None and kernel.kind in FUSIBLE:
            run.append(kernel)
            continue
        if run:
            fused.append(_merged(run))
            run = []
        if kernel is not None:
            fused.append(kernel)
    return segment.model_copy(update={"kernels": tuple(fused)})


def _merged(run: list[Kernel]) -> Kernel:
    if len(run) == 1:
        return run[0]
    last = run[-1]
    read = _sum([k.bytes_read for k in run])
    inner = _sum([k.bytes_written for k in run[:-1]])
    largest = max((k.bytes_read for k in run), key=lambda a: a.base + a.per_sample)
    kept = Affine(
        max(read.base - inner.base, largest.base),
        max(read.per_sample - inner.per_sample, largest.per_sample),
    )
    heaviest = max(run, key=lambda k: k.bytes_read.per_sample + k.bytes_read.base)
    return heaviest.model_copy(
        update={
            "op": "+".join(dict.fromkeys(k.op for k in run)),
            "bytes_read": kept,
            "bytes_written": last.bytes_written,
            "launches": 1,
        }
    )


def _sum(parts: list[Affine]) -> Affine:
    return Affine(sum(a.base for a in parts), sum(a.per_sample for a in parts))
