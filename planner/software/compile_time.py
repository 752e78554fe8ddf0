"""How long torch's compiler works before the first step: long where Python unrolls a loop.

A compiler that sees a whole model sees every step of a loop over time and every layer, each anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...catalog.text.quantity import format_count, format_duration
from ...catalog.units import SECONDS_PER_HOUR
from ...profiles.profile import Profile
from ..plan.setup import Setup
from .kept_memory import compiles_whole, runs_compiler

SECONDS_PER_KERNEL = 0.03
"""Of compiling, for each kernel of a traced step: 1.05 s were measured for each of 16 to 128 steps
of a scan over time, which is 36 kernels in both passes (torch 2.13, Inductor for a processor, two
cores). What is written for a GPU is taken to cost as much: the work is Python's own, in one
thread."""
LONG_S = 600.0
"""From which it is said, and compiling is not proposed: as long as a rented machine takes to start.
A judgement."""


def compile_s(profile: Profile, setup: Setup) -> float:
    """Return seconds that the compiler works at every start of a run, by a rough rule; 0 without.

    Blocks that are compiled by themselves are compiled once for all that are equal.
    """
    if not runs_compiler(setup.stack, compiled=setup.compile):
        return 0.0
    return SECONDS_PER_KERNEL * _kernels(profile, whole=compiles_whole(setup))


def compiles_too_long(profile: Profile, setup: Setup) -> bool:
    """Return whether the compiler works so long that a run should know of it."""
    return compile_s(profile, setup) > LONG_S


def compile_notes(profile: Profile, setup: Setup) -> Iterator[str]:
    """Yield how long the compiler works, where that is long: no time and no cost has it."""
    if compiles_too_long(profile, setup):
        yield f"{_long(profile, setup)}; these sums do not have it"


def not_compiled_notes(profile: Profile, compiled: Setup) -> Iterator[str]:
    """Yield why compiling is not proposed, where that is for how long it takes."""
    if compiles_too_long(profile, compiled):
        yield f"torch.compile is not proposed: {_long(profile, compiled)}"


def _long(profile: Profile, setup: Setup) -> str:
    kernels = format_count(_kernels(profile, whole=compiles_whole(setup)))
    took = format_duration(float(f"{compile_s(profile, setup):.2g}") / SECONDS_PER_HOUR)
    return (
        f"compiling the {kernels} kernels of a step takes about {took} at every start, by a rough"
        " rule (a loop in Python is compiled step by step)"
    )


def _kernels(profile: Profile, *, whole: bool) -> int:
    step = profile.steps[0]
    if not whole:
        return sum(len(segment.kernels) for segment in step.segments)
    return sum(len(step.segments[number].kernels) for number in step.schedule)
