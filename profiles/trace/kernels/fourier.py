"""Bytes that a Fourier transform moves: of several dimensions, all of it once for each of them.

torch gives cuFFT up to three dimensions at once (`_exec_fft` in
aten/src/ATen/native/cuda/SpectralOps.cpp), and it transforms them one after the other, each in as
many passes as its length takes (`fourier_lengths`): the results of one, as complex numbers, are
what the next reads. A scale is a kernel of its own behind them. The inverse of a real transform
overwrites what it reads, so that torch copies that first: the recorder's part. Not counted is the
room that cuFFT works in.
"""

from __future__ import annotations

from dataclasses import replace

from ...fourier_lengths import passes_of
from .kernel_numbers import Counts
from .operations import Call, TensorShape

TO_REAL, FROM_REAL = "_fft_c2r", "_fft_r2c"
TRANSFORMS = frozenset((FROM_REAL, "_fft_c2c", TO_REAL))
"""The operations of torch that `torch.fft` and `torch.stft` come to."""


def count_transform(call: Call, base: Counts) -> Counts:
    """Return the counts of a transform: (tensor, dimensions, scale, ...), and one output."""
    source: TensorShape = call.args[0]
    dimensions, scale = call.args[1], call.args[2]
    results = sum(out.bytes for out in call.outs)
    # The longer side: a real one has nearly twice as many numbers as its transform.
    lengths = [max(each.shape[at] for each in (source, *call.outs)) for at in dimensions]
    real = base.op in (TO_REAL, FROM_REAL)
    complex_bytes = 16 if base.dtype == "fp64" else 8
    found = [
        passes_of(length, complex_bytes=complex_bytes, real=real and at == len(lengths) - 1)
        for at, length in enumerate(lengths)
    ]
    again = max(0, sum(one.total for one in found) - 1)
    between = round(again * (source.bytes if base.op == TO_REAL else results))
    scaled = results if scale else 0
    return replace(
        base,
        dims={**base.dims, **{f"length_{at}": size for at, size in enumerate(lengths)}},
        bytes_read=base.bytes_read + between + scaled,
        bytes_written=base.bytes_written + between + scaled,
        launches=max(1, sum(one.launches for one in found)) + bool(scale),
    )


FOURIER_RULES = dict.fromkeys(TRANSFORMS, count_transform)
