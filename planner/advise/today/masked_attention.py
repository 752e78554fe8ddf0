"""A model whose attention takes a mask, as it would be with `is_causal=True` in its place."""

from __future__ import annotations

from collections.abc import Iterator

from ....profiles.profile import Affine, Kernel, Profile, StepTrace
from ...step.kernels.masked_attention import EFFICIENT, takes_mask


def takes_a_mask(profile: Profile) -> bool:
    """Return whether attention from positions to the same positions takes a mask in 16 bits.

    Without one the flash kernel runs there.
    """
    steps = (step for step in profile.steps if step.numerics != "fp32")
    return any(
        kernel.dtype == "16bit" and _could_be_flash(kernel)
        for step in steps
        for kernel in _kernels(step)
    )


def with_causal_attention(profile: Profile) -> Profile:
    """Return the profile with causal attention in place of a mask: half of the products, flash."""
    counted = next((s for s in profile.steps if s.numerics != "fp32"), profile.steps[0])
    forward = [k for k in _counted(counted) if _could_be_flash(k) and not k.backward]
    trains = any(kernel.kind == "attention" and kernel.backward for kernel in _kernels(counted))
    # As the profile counts a model's FLOPs: the backward pass is twice the forward pass.
    saved = Affine.total(k.flops for k in forward).times(-0.5 * (3 if trains else 1))
    return profile.model_copy(
        update={
            "steps": tuple(map(_causal_step, profile.steps)),
            "flops": Affine.total((profile.flops, saved)),
        }
    )


def _causal_step(step: StepTrace) -> StepTrace:
    segments = tuple(
        segment.model_copy(update={"kernels": tuple(map(_causal, segment.kernels))})
        for segment in step.segments
    )
    return step.model_copy(update={"segments": segments})


def _causal(kernel: Kernel) -> Kernel:
    if not _could_be_flash(kernel):
        return kernel
    op = kernel.op if kernel.dtype != "16bit" else kernel.op.replace(EFFICIENT, "flash")
    return kernel.model_copy(update={"op": op, "causal": True, "flops": kernel.flops.times(0.5)})


def _could_be_flash(kernel: Kernel) -> bool:
    return takes_mask(kernel) and kernel.dims["seq_q"] == kernel.dims["seq_kv"]


def _kernels(step: StepTrace) -> Iterator[Kernel]:
    for segment in step.segments:
        yield from segment.kernels


def _counted(step: StepTrace) -> Iterator[Kernel]:
    """Yield what a model's FLOPs count: not what the file runs again."""
    for index in step.schedule:
        segment = step.segments[index]
        if segment.phase != "recompute":
            yield from (kernel for kernel in segment.kernels if not kernel.rerun)
