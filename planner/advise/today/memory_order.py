"""A model of images whose convolutions run in NCHW order, as it would be in channels-last order.

Tensor cores take no other order: cuDNN turns the tensors of every convolution around and back
(planner/step/kernels/kernel_times.py). `to(memory_format=torch.channels_last)` spares that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....profiles.profile import Kernel, Profile, Segment, StepTrace

PLAIN, CHANNELS_LAST = ".contiguous", ".channels_last"
"""How the operator of a traced convolution ends (profiles/trace/kernels/rules.py)."""
IMAGE_DIMS = 3
"""Of one image: channels, rows, columns. Sound has fewer, a volume has its slices beside them."""
MOST_CHANNELS = 4
"""Of a picture, in colour with depth: where several are one sample, a volume has more slices."""


def takes_images_in_plain_order(profile: Profile) -> bool:
    """Return whether the batch holds images, and convolutions run in NCHW order."""
    return any(_holds_images(one.sample_shape) for one in profile.batch_tensors) and any(
        _is_plain(kernel) for segment in profile.steps[0].segments for kernel in segment.kernels
    )


def _holds_images(shape: Sequence[int]) -> bool:
    """Return whether a sample is an image, or several: of cameras, or of a video."""
    several = len(shape) == IMAGE_DIMS + 1 and shape[1] <= MOST_CHANNELS
    return len(shape) == IMAGE_DIMS or several


def with_channels_last(profile: Profile) -> Profile:
    """Return the profile with every convolution in channels-last order.

    What layers between them copy where they take another order is not in it.
    """
    return profile.model_copy(update={"steps": tuple(map(_turned_step, profile.steps))})


def _turned_step(step: StepTrace) -> StepTrace:
    return step.model_copy(update={"segments": tuple(map(_turned_segment, step.segments))})


def _turned_segment(segment: Segment) -> Segment:
    kernels = tuple(_turned(one) if _is_plain(one) else one for one in segment.kernels)
    return segment.model_copy(update={"kernels": kernels})


def _is_plain(kernel: Kernel) -> bool:
    return kernel.kind == "convolution" and kernel.op.endswith(PLAIN)


def _turned(kernel: Kernel) -> Kernel:
    return kernel.model_copy(update={"op": kernel.op.removesuffix(PLAIN) + CHANNELS_LAST})
