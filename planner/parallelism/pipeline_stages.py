"""Which layers each pipeline stage runs, and how many micro-batches it holds.

Layers are dealt to pipeline · virtual chunks in order (`pipeline_chunks.py`), chunk c to stage
c mod pipeline.
"""

from __future__ import annotations

import numpy as np

from ...profiles.profile import StepTrace
from ..plan.errors import UnsupportedError
from ..plan.layout import Layout
from .pipeline_chunks import chunk_sizes

Array = np.ndarray


def stage_of_instances(trace: StepTrace, layout: Layout) -> Array:
    """Return the stage that runs each instance of a trace's schedule.

    What runs before the first layer (the embedding) belongs to the first stage, what runs behind
    the last (the head) to the last one; -1 marks the optimizer.
    """
    instances = [trace.segments[i] for i in trace.schedule]
    forward = [i for i, s in enumerate(instances) if s.phase == "forward" and s.block is not None]
    if not forward:
        if layout.pipeline > 1:
            raise UnsupportedError(
                "The model has no repeated blocks that pipeline stages could hold.",
                fix="leave pipeline parallelism out.",
            )
        return np.array([-1 if s.phase == "optimizer" else 0 for s in instances])
    sizes = chunk_sizes(len(forward), layout.pipeline * layout.virtual_stages)
    of_layer = [chunk % layout.pipeline for chunk, size in enumerate(sizes) for _ in range(size)]
    stages = np.full(len(instances), -1)
    stages[forward] = of_layer
    last = layout.pipeline - 1
    behind, current = of_layer[::-1], 0
    layers_back = 0
    seen = 0
    for i, segment in enumerate(instances):
        if segment.phase == "optimizer":
            continue
        if segment.phase == "forward":
            if segment.block is not None:
                current, seen = int(stages[i]), seen + 1
            else:
                stages[i] = 0 if seen == 0 else last if seen == len(forward) else current
            continue
        if segment.block is not None:
            stages[i] = behind[min(layers_back, len(behind) - 1)]
            layers_back += segment.phase == "backward"
            current = int(stages[i])
        else:
            done = layers_back >= len(behind)
            stages[i] = last if layers_back == 0 else 0 if done else current
    return stages


def stage_counts(trace: StepTrace, stages: Array, pipeline: int) -> Array:
    """Return [stages, segments]: how often each stage runs each segment in one micro-batch."""
    counts = np.zeros((pipeline, len(trace.segments)))
    for segment, stage in zip(trace.schedule, stages, strict=True):
        if stage >= 0:
            counts[stage, segment] += 1
    return counts


def in_flight(stage: int, layout: Layout, grad_accum: int) -> float:
    """Return how many micro-batches' activations a stage holds at most.

    1F1B: as many as there are stages from it to the end. Interleaved: the chunks that Megatron's
    schedule runs before the first backward, each `1/virtual` of the stage's layers (Narayanan et
    al. 2021, section 2.2; 1 + (p - 1)/(p·v) of 1F1B's on the first stage: Korthikanti et al. 2022,
    section 4.2.3).
    """
    p, v = layout.pipeline, layout.virtual_stages
    if v == 1:
        return min(grad_accum, p - stage)
    chunks = 2 * (p - stage - 1) + (v - 1) * p + 1
    return min(grad_accum * v, chunks) / v
