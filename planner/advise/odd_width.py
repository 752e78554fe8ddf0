"""Odd widths of a model's layers, a vocabulary most often, that padding would make fast."""

from __future__ import annotations

from ...profiles.profile import Profile
from ..plan.setup import Setup
from ..software.stack import odd_widths
from ..step.kernels.odd_widths import odd_widths_of, wider_width

MOST_WIDER = 0.02
"""By how much padding may widen a layer: what that adds to the work is not counted. A judgement."""


def widths_to_pad(setup: Setup, profile: Profile) -> list[int]:
    """Return the odd widths that make products of a setup slow, the largest first.

    A compiler pads by itself; where the model is split its parts have widths of their own, and
    elements of 4 bytes have no slow widths.
    """
    is_slow = odd_widths(setup.stack) == "kept" and not setup.compile
    if not (is_slow and setup.layout.is_data_parallel_only) or setup.precision in ("fp32", "tf32"):
        return []
    found = odd_widths_of(
        kernel
        for step in profile.steps
        for segment in step.segments
        for kernel in segment.kernels
        if kernel.dtype == "16bit"
    )
    padded = (one for one in found if wider_width(one) <= (1 + MOST_WIDER) * one)
    return sorted(padded, reverse=True)
