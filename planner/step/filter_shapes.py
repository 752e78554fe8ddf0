"""Convolutions whose filters are not square: of sequences and of volumes, most of them.

Kernels of square filters were measured on several devices; of others nobody published any. A
Profile knows how many elements a filter has and not its sides: of 4 or 9 in a row it passes for
square, and 1 x 7 of an image does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...profiles.profile import Kernel


def other_filter_share(kernels: Iterable[Kernel]) -> float:
    """Return which part of a step's FLOPs convolves with filters that are not square."""
    all_flops = others = 0.0
    for kernel in kernels:
        flops = kernel.flops.at(1)
        all_flops += flops
        if kernel.kind == "convolution" and not _is_square(max(kernel.dims["kernel_elements"])):
            others += flops
    return others / all_flops if all_flops else 0.0


def _is_square(elements: float) -> bool:
    return math.isqrt(int(elements)) ** 2 == elements
