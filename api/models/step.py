"""One traced training step of a model as a person looks at it: memory, work, costliest kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from ...catalog.errors import UsageError
from ...catalog.vocabulary import FrozenPrecision, Precision, Recompute
from ...planner.plan.refusals import refuse_other_word
from ...profiles.profile import NUMERICS_OF_PRECISION, Profile

REFERENCE_ACCELERATOR = "H100-80GB-SXM"
"""Whose kernel curves put the kernels of a step in order: it was measured in every precision."""

if TYPE_CHECKING:
    from ...profiles.analysis.costliest_kernels import KernelCost
    from ...profiles.analysis.replay import MemoryReplay
    from ...profiles.profile import Phase, StepTrace
    from ...profiles.user_model.spec import ModelSpec


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
    """The costliest of the step, the one that takes longest on `accelerator` first."""
    accelerator: str
    """Device that `device_s` here and of the kernels is predicted for."""
    device_s: float
    """Seconds that its kernels take one after the other, without the host and without waiting."""
    flops: float
    """FLOPs of the whole step, recompute included."""
    frozen_precision: FrozenPrecision | None = None
    """How parameters that are not trained are kept; None as the precision keeps the others."""


def step_summary(
    profile: Profile,
    *,
    precision: Precision | None = None,
    micro_batch: int | None = None,
    recompute: Recompute = "none",
    model: ModelSpec | None = None,
) -> StepSummary:
    """Return what one training step of a traced model computes and keeps in memory.

    Args:
        profile: What `profile` returned.
        precision: One that was traced; default: the file's own, else fp32.
        micro_batch: Samples in the step; default: that of `make_batch`, else 1.
        recompute: What is computed again in the backward pass instead of kept.
        model: What `model` returned, for adapters on a config: without a precision, what they leave
            alone is in the config's dtype, as people load it.

    Raises:
        UsageError: The Profile holds no trace for that precision.
    """
    from ...profiles.analysis.costliest_kernels import (
        costliest_kernels,
        phase_at,
        step_device_s,
        step_flops,
    )
    from ...profiles.analysis.replay import replay
    from ...profiles.passes.recompute import recomputed
    from ..answers import own_precision
    from .config_facts import config_frozen

    if precision is not None:
        refuse_other_word("precision", precision, get_args(Precision))
    frozen = config_frozen(model, profile) if precision is None else None
    precision = precision or own_precision(profile)
    micro_batch = micro_batch or profile.default_micro_batch or 1
    numerics = NUMERICS_OF_PRECISION[precision]
    if frozen is not None and numerics == "amp16":
        numerics = "frozen16"
    if numerics not in profile.numerics():
        held = ", ".join(profile.numerics())
        raise UsageError(
            f"The profile holds no trace for {precision}; it holds {held}.",
            fix="give the model file itself, or leave --precision out.",
        )
    step = recomputed(profile.step(numerics), profile, recompute)
    memory = replay(step, micro_batch)
    run_s = _kernel_s(profile, step, precision, micro_batch)
    return StepSummary(
        precision=precision,
        frozen_precision=frozen,
        micro_batch=micro_batch,
        recompute=recompute,
        memory=memory,
        peak_phase=phase_at(step, memory.peak_tick),
        kernels=costliest_kernels(step, micro_batch, run_s),
        accelerator=REFERENCE_ACCELERATOR,
        device_s=step_device_s(step, run_s),
        flops=step_flops(step, micro_batch),
    )


def _kernel_s(
    profile: Profile, step: StepTrace, precision: Precision, micro_batch: int
) -> list[float]:
    """Return the predicted seconds of one run of each kernel on the reference accelerator."""
    import numpy as np

    from ...catalog.snapshot import load_catalogue
    from ...planner.predict.kept.model_cache import ModelCache
    from ...planner.step.kernels.kernel_times import KernelTable
    from ...profiles.analysis.costliest_kernels import kernels_of

    cache = ModelCache(profile)
    curves = cache.curves(load_catalogue().accelerators[REFERENCE_ACCELERATOR])
    table = KernelTable(list(kernels_of(step)), np.array([micro_batch]))
    device_s = table.device_s(curves, precision)
    turned_s = table.transposing_s(curves, precision, cache.constants, copy_step=1.0)
    return (device_s + turned_s)[:, 0].tolist()
