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
    schedule = np.asarray(trace.schedule)
    phases = [one.phase for one in trace.segments]
    forward, backward, optimizes = (
        np.array([one == name for one in phases])[schedule]
        for name in ("forward", "backward", "optimizer")
    )
    in_block = np.array([one.block is not None for one in trace.segments])[schedule] & ~optimizes
    layers = int((forward & in_block).sum())
    if not layers:
        if layout.pipeline > 1:
            raise UnsupportedError(
                "The model has no repeated blocks that pipeline stages could hold.",
                fix="leave pipeline parallelism out.",
            )
        return np.where(optimizes, -1, 0)
    sizes = chunk_sizes(layers, layout.pipeline * layout.virtual_stages)
    of_layer = np.repeat(np.arange(len(sizes)) % layout.pipeline, sizes)
    back = in_block & backward
    seen, done = np.cumsum(forward & in_block), np.cumsum(back)
    # A block's recompute runs before its backward pass, and on the same stage.
    layer = np.where(forward, seen - 1, layers - 1 - np.minimum(done - back, layers - 1))
    of_block = of_layer[np.maximum(layer, 0)]
    # The root between two blocks runs where the one before it did.
    before = np.maximum.accumulate(np.where(in_block, np.arange(len(schedule)), -1))
    between = np.where(before >= 0, of_block[np.maximum(before, 0)], 0)
    last = layout.pipeline - 1
    ahead = np.where(seen == 0, 0, np.where(seen == layers, last, between))
    behind = np.where(done == 0, last, np.where(done >= layers, 0, between))
    stages = np.where(in_block, of_block, np.where(forward, ahead, behind))
    return np.where(optimizes, -1, stages)


def stage_counts(trace: StepTrace, stages: Array, pipeline: int) -> Array:
    """Return [stages, segments]: how often each stage runs each segment in one micro-batch."""
    width, runs = len(trace.segments), stages >= 0
    places = stages[runs] * width + np.asarray(trace.schedule)[runs]
    counts = np.bincount(places, minlength=pipeline * width)
    return counts.reshape(pipeline, width).astype(float)


def in_groups(layout: Layout, grad_accum: int) -> int:
    """Return how many rounds of as many micro-batches as stages an interleaved step has.

    Without chunks every micro-batch is a round: the next begins before a stage is through with it.
    """
    if layout.virtual_stages == 1:
        return grad_accum
    return max(1, grad_accum // layout.pipeline)


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
