"""What the allocator's pool keeps from before the first step.

A program that runs its model once in fp32 with autograd on (to learn the shape of a batch's labels,
say) has taken every activation of that pass from the device before it trains. The pool gives none
of it back, so a step in 16 bits runs inside it: the device shows the larger of the two. Example:
mila-iqia/milabench 56ac183, benchmate/dataloader.py, generate_tensor_classification.
"""

from __future__ import annotations

import numpy as np

from ...plan.setup import Setup
from ..kept.model_cache import ModelCache

FP32_FORWARD_FIRST = "fp32-forward-first"
"""Feature, as run records name it: one forward pass in fp32, with its graph, before training."""


def warm_up_bytes(cache: ModelCache, setup: Setup) -> float:
    """Return bytes that the pool holds from a pass before training; 0 where there was none.

    Such a pass only takes, so that what is reserved is what is allocated.

    Raises:
        UsageError: the Profile was made without fp32.
    """
    if FP32_FORWARD_FIRST not in setup.features:
        return 0.0
    shape = cache.steps.envelope("fp32", "none", np.array([setup.micro_batch]))
    forward = np.array([moment.phase == "forward" for moment in shape.moments])
    moving = (shape.activation_bytes + shape.temporary_bytes + shape.input_bytes)[forward, 0]
    # No optimizer has stepped yet.
    kept = shape.persistent_bytes["parameters"] + shape.persistent_bytes["buffers"]
    return float(moving.max(initial=0.0) + kept)
