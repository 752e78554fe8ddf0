"""A step whose cross-entropy runs in one kernel a pass, from the step that writes it out.

A compiler that sees the loss reads the 16-bit logits once in the forward pass, and once more in the
backward pass, where it writes their gradient: no fp32 copy, log-softmax or gradient of either moves
(what Inductor makes of log_softmax and nll_loss; flash_attn/ops/triton/cross_entropy.py likewise).
What such a loss keeps is `loss.with_loss`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..profile import Affine, Kernel, Segment, StepTrace

_CAST = "_to_copy"
_FORWARD, _BACKWARD = "_log_softmax", "_log_softmax_backward_data"


def with_loss_kernel(step: StepTrace) -> StepTrace:
    """Return the step with one kernel for each pass of a cross-entropy.

    Steps without one, and traces whose kernels have no places, stay as they are.
    """
    return step.model_copy(update={"segments": tuple(map(_in_one_kernel, step.segments))})


def _in_one_kernel(segment: Segment) -> Segment:
    kernels = segment.kernels
    places = {at: k for at, k in enumerate(kernels) if k.op in (_FORWARD, _BACKWARD)}
    if not places or len(segment.offsets) != len(kernels):
        return segment
    made, gone = {}, set[int]()
    for at, kernel in places.items():
        made[at] = _forward(kernels, at) if kernel.op == _FORWARD else _backward(kernels, at)
        gone |= _beside(kernels, at)
    kept = [at for at in range(len(kernels)) if at not in gone]
    return segment.model_copy(
        update={
            "kernels": tuple(made.get(at, kernels[at]) for at in kept),
            "offsets": tuple(segment.offsets[at] for at in kept),
        }
    )


def _forward(kernels: Sequence[Kernel], at: int) -> Kernel:
    """Return the kernel that reads the logits, as wide as they were before a cast."""
    cast = _cast_before(kernels, at)
    logits = kernels[at].bytes_read if cast is None else cast.bytes_read
    nothing = Affine(base=0, per_sample=0)
    return kernels[at].model_copy(update={"bytes_read": logits, "bytes_written": nothing})


def _backward(kernels: Sequence[Kernel], at: int) -> Kernel:
    """Return the kernel that reads the logits again and writes their gradient, as wide as they."""
    cast = _cast_behind(kernels, at)
    gradient = kernels[at].bytes_written if cast is None else cast.bytes_written
    return kernels[at].model_copy(update={"bytes_read": gradient, "bytes_written": gradient})


def _beside(kernels: Sequence[Kernel], at: int) -> set[int]:
    """Return the places of what else the loss runs written out."""
    if kernels[at].op == _FORWARD:
        own = {at - 1} if _cast_before(kernels, at) else set[int]()
        others, name = {at + 1}, "nll_loss_forward"
    else:
        own = {at + 1} if _cast_behind(kernels, at) else set[int]()
        others, name = {at - 1}, "nll_loss_backward"
    return own | {one for one in others if 0 <= one < len(kernels) and kernels[one].op == name}


def _cast_before(kernels: Sequence[Kernel], at: int) -> Kernel | None:
    for before in kernels[at - 1 : at] if at else ():
        if before.op == _CAST and before.bytes_written == kernels[at].bytes_read:
            return before
    return None


def _cast_behind(kernels: Sequence[Kernel], at: int) -> Kernel | None:
    for behind in kernels[at + 1 : at + 2]:
        if behind.op == _CAST and behind.bytes_read == kernels[at].bytes_written:
            return behind
    return None
