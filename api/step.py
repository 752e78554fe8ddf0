"""One traced training step of a model as a person looks at it: memory, work, costliest kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..catalog.errors import UsageError
from ..catalog.vocabulary import Precision, Recompute
from ..profiles.profile import NUMERICS_OF_PRECISION, Profile

if TYPE_CHECKING:
    from ..profiles.analysis.caching_allocator import MemoryReplay
    from ..profiles.analysis.costliest_kernels import KernelCost
    from ..profiles.profile import Phase


@dataclass(frozen=True, kw_only=True)
class StepSummary:
    """What one training step computes and keeps in memory, on no hardware yet."""

    precision: Precision
    micro_batch: int
    """Samples in the step."""
    recompute: Recompute
    memory: MemoryReplay
    """What torch's allocator would hold."""
    peak_phase: Phase | None
    """The pass in which memory is highest."""
    kernels: tuple[KernelCost, ...]
    """The costliest of the step, first."""
    flops: float
    """FLOPs of the whole step, recompute included."""


def step_summary(
    profile: Profile,
    *,
    precision: Precision | None = None,
    micro_batch: int | None = None,
    recompute: Recompute = "none",
) -> StepSummary:
    """Return what one training step of a traced model computes and keeps in memory.

    Args:
        profile: What `profile` returned.
        precision: One that was traced; default: the file's own, else fp32.
        micro_batch: Samples in the step; default: that of `make_batch`, else 1.
        recompute: What is computed again in the backward pass instead of kept.

    Raises:
        UsageError: The Profile holds no trace for that precision.
    """
    from ..profiles.analysis.caching_allocator import replay
    from ..profiles.analysis.costliest_kernels import costliest_kernels, phase_at, step_flops
    from ..profiles.passes.recompute import recomputed
    from .answers import own_precision

    precision = precision or own_precision(profile)
    micro_batch = micro_batch or profile.default_micro_batch or 1
    numerics = NUMERICS_OF_PRECISION[precision]
    if numerics not in profile.numerics():
        held = ", ".join(profile.numerics())
        raise UsageError(
            f"The profile holds no trace for {precision}; it holds {held}.",
            fix="give the model file itself, or leave --precision out.",
        )
    step = recomputed(profile.step(numerics), profile, recompute)
    memory = replay(step, micro_batch)
    return StepSummary(
        precision=precision,
        micro_batch=micro_batch,
        recompute=recompute,
        memory=memory,
        peak_phase=phase_at(step, memory.peak_tick),
        kernels=costliest_kernels(step, micro_batch),
        flops=step_flops(step, micro_batch),
    )
