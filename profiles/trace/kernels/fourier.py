"""Bytes that a Fourier transform moves: of several dimensions, all of it once for each of them.

torch gives cuFFT up to three dimensions at once (`_exec_fft` in
aten/src/ATen/native/cuda/SpectralOps.cpp), and it transforms them one after the other: the results
of one, as complex numbers, are what the next reads. A scale is a kernel of its own behind them.
The inverse of a real transform overwrites what it reads, so that torch copies that first: the
recorder's part. Not counted is what cuFFT takes for lengths that have large prime factors, or are
beyond what one multiprocessor holds: a second pass, and room to work in.
"""

from __future__ import annotations

from dataclasses import replace

from .kernel_numbers import Counts
from .operations import Call, TensorShape

TO_REAL = "_fft_c2r"
TRANSFORMS = frozenset(("_fft_r2c", "_fft_c2c", TO_REAL))
"""The operations of torch that `torch.fft` and `torch.stft` come to."""


def count_transform(call: Call, base: Counts) -> Counts:
    """Return the counts of a transform: (tensor, dimensions, scale, ...), and one output."""
    source: TensorShape = call.args[0]
    dimensions, scale = call.args[1], call.args[2]
    results = sum(out.bytes for out in call.outs)
    between = max(0, len(dimensions) - 1) * (source.bytes if base.op == TO_REAL else results)
    scaled = results if scale else 0
    return replace(
        base,
        bytes_read=base.bytes_read + between + scaled,
        bytes_written=base.bytes_written + between + scaled,
        launches=max(1, len(dimensions)) + bool(scale),
    )


FOURIER_RULES = dict.fromkeys(TRANSFORMS, count_transform)
