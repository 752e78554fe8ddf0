"""A step whose softmax keeps its input beside its result, derived from the step where it does not.

torch before 1.11 saved both for the backward pass, which reads the result alone (pytorch/pytorch
#64000, of 2021-08; #65242): scores of attention that is written out counted twice, and fp32 logits.
"""

from __future__ import annotations

from ..profile import CATEGORIES, KERNEL_KINDS, StepTrace
from .storages import storages_of, with_storages

_ACTIVATIONS = CATEGORIES.index("activations")
_SOFTMAX = KERNEL_KINDS.index("softmax")


def with_softmax_inputs(step: StepTrace) -> StepTrace:
    """Return the step with the inputs of its softmaxes, as large as their results and as long kept.

    Traces without producers stay as they are.
    """
    if not step.memory.producer:
        return step
    rows = storages_of(step.memory)
    inputs = [
        dict(row) for row in rows if row["producer"] == _SOFTMAX and row["category"] == _ACTIVATIONS
    ]
    return with_storages(step, [*rows, *inputs])
