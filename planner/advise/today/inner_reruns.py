"""What a file recomputes inside of its blocks: a checkpoint around a function or a part of them.

Such a rerun stands in the trace among the kernels of the backward pass, with no segment of its own
(`Kernel.rerun`).
"""

from __future__ import annotations

from ....profiles.profile import StepTrace


def flops_of_inner_reruns(step: StepTrace) -> dict[int, float]:
    """Return the FLOPs that each instance of a backward pass runs again, of one sample.

    Instances of which nothing but kernels without products runs again are left out, and so is what
    is outside of the blocks.
    """
    of_segment = [
        sum(kernel.flops.at(1) for kernel in segment.kernels if kernel.rerun)
        for segment in step.segments
    ]
    # A Profile from elsewhere does not say what its backward passes are of.
    instances = enumerate(zip(step.schedule, step.forward_of, strict=False))
    return {
        index: of_segment[number]
        for index, (number, forward) in instances
        if forward >= 0 and of_segment[number]
    }
