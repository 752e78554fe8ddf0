"""What steps say of the samples that they compare with each other: how what that takes grows."""

from __future__ import annotations

from collections.abc import Iterable

from .profile import StepTrace


def knows_growth(steps: Iterable[StepTrace]) -> bool:
    """Return whether a trace at large batches told what the steps make of pairs of samples.

    Where it did not, sizes are lines through two small batches, and right only near those.
    """
    kernels = (
        kernel
        for step in steps
        for segment in step.segments
        if segment.phase != "optimizer"
        for kernel in segment.kernels
    )
    return any(
        size.compares_samples
        for kernel in kernels
        for size in (*kernel.dims.values(), kernel.flops, kernel.bytes_written)
    )
