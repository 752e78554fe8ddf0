"""How much of a step is multiplied in fp64, which no precision of a plan changes."""

from __future__ import annotations

from ...profiles.profile import Profile

_SAMPLES = 64
"""So many that what does not grow with the micro-batch hardly counts."""
_LEAST_SHARE = 0.01
"""Less is not worth a note."""


def fp64_share(profile: Profile) -> float:
    """Return which part of a step's FLOPs is in fp64, between 0 and 1."""
    step = profile.steps[0]
    kernels = [kernel for segment in step.segments for kernel in segment.kernels]
    whole = sum(kernel.flops.at(_SAMPLES) for kernel in kernels)
    double = sum(kernel.flops.at(_SAMPLES) for kernel in kernels if kernel.dtype == "fp64")
    return double / whole if whole else 0.0


def with_fp64_note(profile: Profile) -> Profile:
    """Return the Profile with a note where it multiplies in fp64: people seldom mean to."""
    share = fp64_share(profile)
    if share < _LEAST_SHARE:
        return profile
    what = "all products are" if share > 1 - _LEAST_SHARE else f"{share:.0%} of the FLOPs are"
    note = (
        f"{what} in fp64 under every --precision, as the file's tensors are; graphics cards (T4,"
        " L4, RTX) multiply it at 1/32 to 1/64 of their rate in fp32, which .float() trains in"
    )
    if note in profile.notes:
        return profile
    return profile.model_copy(update={"notes": (*profile.notes, note)})
