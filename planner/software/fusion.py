"""What a compiler makes of a segment: runs of memory-bound kernels become one kernel each."""

from __future__ import annotations

from ...profiles.profile import Affine, Kernel, KernelKind, Segment

FUSIBLE: frozenset[KernelKind] = frozenset({"pointwise", "norm", "softmax", "reduction", "copy"})
"""Kinds that Inductor and XLA merge; GEMM, attention and convolution stay apart."""
REREAD = "reread_bytes"
"""Dimension of a kernel: bytes that it moves besides where reductions are kernels of their own."""
_READ_AGAIN = {
    "_softmax": 2,  # Once for the largest, once for the sum of exponentials, once for the quotient.
    "_log_softmax": 2,
    "_softmax_backward_data": 1,
    "native_layer_norm": 2,  # Mean, variance, result.
    "native_layer_norm_backward": 2,  # Along the rows, along the columns, result.
    "rms_norm": 1,
    "rms_norm_backward": 2,
}
"""How often XLA on GPUs reads again what a kernel written by hand reads once: it fuses what leads
to a reduction, never a reduction with what follows (`IsProducerConsumerFusible` in
gpu_fusible.cc), unless Triton merges both sides."""


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
            fused.append(_with_rereads(_merged(run), run))
            run = []
        if kernel is not None:
            fused.append(kernel)
    return segment.model_copy(update={"kernels": tuple(fused)})


def _with_rereads(merged: Kernel, run: list[Kernel]) -> Kernel:
    """Return a merged kernel with what separate reductions would move besides.

    The shares of a softmax are an operand of the product behind it, whatever else the run makes.
    """
    again = [k.bytes_read.times(_READ_AGAIN[k.op]) for k in run if k.op in _READ_AGAIN]
    again += [k.bytes_written for k in run[:-1] if k.op == "_softmax"]
    if not again:
        return merged
    return merged.model_copy(update={"dims": {**merged.dims, REREAD: Affine.total(again)}})


def _merged(run: list[Kernel]) -> Kernel:
    if len(run) == 1:
        return run[0]
    last = run[-1]
    read = Affine.total(k.bytes_read for k in run)
    inner = Affine.total(k.bytes_written for k in run[:-1])
    heaviest = max(run, key=lambda k: sum(k.bytes_read))
    largest = heaviest.bytes_read
    parts = zip(read, inner, largest, strict=True)
    kept = Affine(*(max(all_read - made, least) for all_read, made, least in parts))
    return heaviest.model_copy(
        update={
            "op": "+".join(dict.fromkeys(k.op for k in run)),
            "bytes_read": kept,
            "bytes_written": last.bytes_written,
            "launches": 1,
        }
    )
