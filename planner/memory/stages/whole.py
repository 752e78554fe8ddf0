"""Sharded state beside pipeline stages: torch FSDP gathers and reduces once a step there.

torch's pipelines leave gradients unreduced, and what was gathered whole, from one micro-batch to
the next, and reduce unit by unit when a stage's last backward pass has ended (torch 2.13,
distributed/pipelining/stage.py: `backward_maybe_with_nosync`, `perform_reduce_grad`; gradients add
up in the dtype they are reduced in, `FSDPParam.to_accumulated_grad_if_needed`). So a rank with N
parameters of its stage holds, beside its shards,

    w·N gathered + r·N gradients + w·(the gradients that the running backward pass has made)

with w bytes per gathered parameter and r per reduced gradient; checked against a trace of it
(tests/planner/memory/stages/test_whole.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...parallelism.fsdp import Unit
from ...parallelism.pipeline_stages import in_groups
from ...parallelism.rank_parameters import RankUnits
from ...plan.layout import Layout

Array = np.ndarray


def gradient_share(units: RankUnits, layout: Layout, grad_accum: int) -> float:
    """Return the part of a stage's gradients that is whole at one time.

    With as many micro-batches as stages an interleaved stage is through with the backward passes
    of one chunk, and reduces them, before the next chunk's begin; the root is the last chunk's.

    Args:
        units: parameters of a rank of the stage.
        layout: the pipeline.
        grad_accum: micro-batches per step.
    """
    if in_groups(layout, grad_accum) > 1:
        return 1.0
    root = units.dense[-1].trainable / max(1.0, units.trainable)
    return root + (1 - root) / layout.virtual_stages


def gathered_bytes(units: Sequence[Unit], shard: int, gather_bytes: int) -> float:
    """Return bytes of all parameters of a stage, gathered."""
    return gather_bytes * sum(unit.count * unit.padded(shard) for unit in units)


def reduced_bytes(units: Sequence[Unit], shard: int, gather_bytes: int, width: int) -> float:
    """Return bytes beyond those of a whole stage when the first unit's gradients are reduced.

    Its parameters are freed; its gradients exist twice, as they are and as they are sent.
    """
    more = (
        width * unit.padded(shard, trainable=True) - gather_bytes * unit.padded(shard)
        for unit in units
    )
    return max(0.0, *more)
