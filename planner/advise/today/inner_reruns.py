"""What a file recomputes inside of its blocks: a checkpoint around a function or a part of them.

Such a rerun stands in the trace among the kernels of the backward pass, with no hook of a module
around it. It is known by a stretch of kernels that the forward pass of the block has too, around
one that no formula of a backward pass calls (torch, tools/autograd/derivatives.yaml).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....profiles.profile import Kernel, Segment, StepTrace

FORWARD_ONLY = frozenset(
    (
        "addmm",
        "baddbmm",
        "convolution",
        "native_layer_norm",
        "native_group_norm",
        "native_batch_norm",
        "cudnn_batch_norm",
        "_fused_rms_norm",
        "gelu",
        "silu",
        "relu",
        "sigmoid",
        "tanh",
        "rsqrt",
        "_softmax",
        "_log_softmax",
        "native_dropout",
    )
)


def flops_of_inner_reruns(step: StepTrace) -> dict[int, float]:
    """Return the FLOPs that each instance of a backward pass runs again, of one sample.

    Instances of which nothing but kernels without products runs again are left out.
    """
    known: dict[tuple[int, int], float] = {}
    found: dict[int, float] = {}
    # A Profile from elsewhere does not say what its backward passes are of.
    for index, (number, forward) in enumerate(zip(step.schedule, step.forward_of, strict=False)):
        if step.segments[number].phase != "backward" or forward < 0:
            continue
        key = step.schedule[forward], number
        if key not in known:
            first, second = (step.segments[one] for one in key)
            known[key] = sum(kernel.flops.at(1) for kernel in _again(first, second))
        if known[key]:
            found[index] = known[key]
    return found


def _again(forward: Segment, backward: Segment) -> Iterator[Kernel]:
    """Yield the kernels of a backward pass that are those of the forward pass, run again."""
    first, second = forward.kernels, backward.kernels
    done = 0
    for at, kernel in enumerate(second):
        if at < done or not _is_forward(kernel):
            continue
        starts = [here for here, other in enumerate(first) if _alike(kernel, other)]
        if not starts:
            continue
        begun, done = max((_around(first, second, here, at, done) for here in starts), key=_length)
        yield from second[begun:done]


def _is_forward(kernel: Kernel) -> bool:
    return kernel.op in FORWARD_ONLY or (kernel.kind == "attention" and not kernel.backward)


def _alike(one: Kernel, other: Kernel) -> bool:
    return (one.op, one.dims, one.dtype) == (other.op, other.dims, other.dtype)


def _around(
    first: Sequence[Kernel], second: Sequence[Kernel], here: int, at: int, after: int
) -> tuple[int, int]:
    """Return where a stretch around `second[at]` begins and ends that is also around `first[here]`.

    It begins no earlier than `after`.
    """
    begun = ended = 0
    while (
        here > begun
        and at - after > begun
        and _alike(first[here - begun - 1], second[at - begun - 1])
    ):
        begun += 1
    while (
        here + ended + 1 < len(first)
        and at + ended + 1 < len(second)
        and _alike(first[here + ended + 1], second[at + ended + 1])
    ):
        ended += 1
    return at - begun, at + ended + 1


def _length(stretch: tuple[int, int]) -> int:
    return stretch[1] - stretch[0]
