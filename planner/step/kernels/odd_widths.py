"""Odd widths of a model's layers, and the widths that would be fast in their place.

Rows of an odd number of 16-bit elements are slow to multiply (`profiles/curves/odd_widths.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ....profiles.profile import Kernel

MULTIPLE = 64
"""Of a width that every kernel takes: rows of 128 bytes in 16 bits."""


def wider_width(width: int) -> int:
    """Return the next width that every kernel takes: 50,304 for 50,257."""
    return -(-width // MULTIPLE) * MULTIPLE


def odd_widths_of(kernels: Iterable[Kernel]) -> set[int]:
    """Return the odd widths of layers that plain products have, in elements.

    Widths are the lengths of rows; samples and tokens, which grow with the micro-batch, count the
    rows.
    """
    return {
        int(size.base)
        for kernel in kernels
        if kernel.kind == "gemm"
        and not (kernel.dims["batch"].grows or kernel.dims["batch"].base > 1)
        for size in (kernel.dims[name] for name in ("m", "n", "k"))
        if not size.grows and size.base % 2
    }
