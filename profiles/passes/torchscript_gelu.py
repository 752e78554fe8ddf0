"""A step whose GELU is a TorchScript function of 2020, derived from the step where it is a kernel.

Transformers of that time scripted `x * 0.5 * (1 + erf(x / sqrt(2)))` (NVIDIA DeepLearningExamples,
PyTorch/LanguageModeling/BERT/modeling.py of 2019-09, `bias_gelu`). Its backward pass captures three
tensors (`graph_for` of the scripted function shows them) where the kernel keeps its input. That
torch 1.4 let go of them only with the graph, which the loop's variables hold through the next
forward pass, is inferred from what runs of it held: 55 values per token, layer and unit of width
(lambdal/deeplearning-benchmark, 2020). Kernels keep 30, inputs of softmax of that time 6
(`softmax_input.py`), what is captured beside the input 8, and what the step before captured 12.
"""

from __future__ import annotations

from ..profile import CATEGORIES, StepTrace
from .storages import kernel_ticks, storages_of, with_storages

_ACTIVATIONS = CATEGORIES.index("activations")
CAPTURED = 3
BEFORE_TICK = -1


def with_scripted_gelu(step: StepTrace) -> StepTrace:
    """Return the step with what its GELUs capture, and those of the step before it."""
    rows = storages_of(step.memory)
    outputs = {row["birth_tick"]: row for row in rows}
    ends = reversed(_ticks(step, "gelu_backward"))
    added = []
    for start, end in zip(_ticks(step, "gelu"), ends, strict=False):
        if start not in outputs:
            continue
        captured = outputs[start] | {"death_tick": end + 1, "category": _ACTIVATIONS}
        # One of them stands for the input, which the kernel keeps.
        added += [dict(captured) for _ in range(CAPTURED - 1)]
        old = captured | {"birth_tick": BEFORE_TICK, "death_tick": _backward_tick(step)}
        added += [dict(old) for _ in range(CAPTURED)]
    return with_storages(step, [*rows, *added])


def _ticks(step: StepTrace, op: str) -> list[int]:
    return [tick for tick, kernel in kernel_ticks(step) if kernel.op == op]


def _backward_tick(step: StepTrace) -> int:
    for at, number in enumerate(step.schedule):
        if step.segments[number].phase != "forward":
            return step.start_tick[at]
    return step.memory.end_tick
