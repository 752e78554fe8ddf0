"""How much of a step runs in kernels that hardly any published run has.

Published are kernels, and steps, of products, attention and convolutions of images. Of recurrent
layers, of filters over sequences and volumes, of dilated ones, of gathers and scatters, of Fourier
transforms and products of complex numbers nobody published a kernel that gpuplan could be fitted
to, and of steps one (a model of timm's has LSTMs); nor of anything in fp64. (FNO-3D, whose
transforms are 46 = 2 x 23 long, took .39 s a step of 10 samples on a V100 with torch 1.6, arXiv
2010.08895, and twice as long and more with 1.8, neuraloperator#57: four to ten times its bytes.)
Where gathers are the embedding of tokens they are next to nothing of a step.
"""

from __future__ import annotations

import math
from collections import Counter

from ...profiles.profile import COMPLEX, Kernel, StepTrace

_FLOPS_PER_BYTE = 60
"""What an A100 multiplies in 16 bits, at half of its peak, while it moves what is a byte in fp32.

A share of time is meant, on whichever device."""
_SAMPLES = 64
"""So many that weights and the optimizer do not count much."""
_FLOPS_PER_DEPTHWISE = {False: 25, True: 140}
"""The same for an operation of a depthwise convolution, with filters of two sides and of one."""


def new_kernel_share(trace: StepTrace) -> float:
    """Return which part of a step is in kernels that nobody published, between 0 and 1."""
    whole = new = 0.0
    times = Counter(trace.schedule)
    for number, segment in enumerate(trace.segments):
        for kernel in segment.kernels:
            weight = times[number] * _weight(kernel)
            whole += weight
            new += weight * _is_new(kernel)
    return new / whole if whole else 0.0


def _weight(kernel: Kernel) -> float:
    moved = kernel.bytes_read.at(_SAMPLES) + kernel.bytes_written.at(_SAMPLES)
    flops = kernel.flops.at(_SAMPLES)
    if kernel.kind == "convolution" and _is_depthwise(kernel):
        flops *= _FLOPS_PER_DEPTHWISE[_side(kernel) == _elements(kernel) > 1]
    return flops + _FLOPS_PER_BYTE * moved


def _is_new(kernel: Kernel) -> bool:
    if kernel.dtype == "fp64":
        return True
    if kernel.kind == "convolution":
        is_dilated = max(kernel.dims.get("dilation", (1,))) > 1 and _elements(kernel) > 1
        return _side(kernel) ** 2 != _elements(kernel) or is_dilated
    is_complex_product = kernel.kind == "gemm" and kernel.op.endswith(COMPLEX)
    return is_complex_product or kernel.kind in ("rnn", "embedding", "fft")


def _is_depthwise(kernel: Kernel) -> bool:
    groups = max(kernel.dims["groups"])
    return groups > 1 and groups == max(kernel.dims["in_channels"])


def _side(kernel: Kernel) -> int:
    """Return the longest side of a filter; that of a square where an older Profile has none."""
    return int(max(kernel.dims.get("filter_side", (math.isqrt(_elements(kernel)),))))


def _elements(kernel: Kernel) -> int:
    return int(max(kernel.dims["kernel_elements"]))
