"""Sharded training that reduces its gradients once a step: torch FSDP under `no_sync`.

Between the micro-batches of a step gradients are neither reduced nor sharded: every rank keeps all
of them (torch FullyShardedDataParallel.no_sync: "FSDP will accumulate the full model gradients").
Its parameters are one flat tensor per unit (torch/distributed/fsdp/_flat_param.py): what backward
makes tensor by tensor is joined into one flat gradient before it is added to the sum, so that a
unit's gradients exist twice beside their sum; the root's, while its parameters are gathered too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..parallelism.fsdp import Made, Moment, Sharding, Unit, buffer_bytes
from .plateaus import Array, Envelope

NO_SYNC = "no-sync"
"""Feature, as run records name it: gradients are reduced in a step's last micro-batch alone."""


def kept_gradient_bytes(
    shape: Envelope, units: dict[str | None, Unit], *, shard: int, width: int, grad_accum: int
) -> Array:
    """Return [P] bytes of the gradients that a rank keeps while micro-batches add to them.

    With two micro-batches the second backward adds and reduces, block by block; with more there is
    one between that only adds.

    Args:
        shape: plateaus of one micro-batch's step.
        units: units by name.
        shard: ranks that share one copy.
        width: bytes per whole gradient, in the dtype that layers compute in.
        grad_accum: micro-batches per step, at least two.
    """
    trainable = sum(unit.count * unit.trainable for unit in units.values())
    whole = np.full(len(shape.moments), float(width * trainable))
    if grad_accum > 2:
        return whole
    full = shape.gradient_bytes.max(initial=0.0)
    of_blocks = 1 - units[None].trainable / max(1, trainable)
    before = max(
        (
            size
            for size, moment in zip(shape.gradient_bytes, shape.moments, strict=True)
            if moment.phase == "backward" and moment.unit is None and moment.previous is None
        ),
        default=0.0,
    )
    ended = shape.gradient_bytes - shape.block_gradient_bytes - before
    reduced = np.clip(ended / max(1.0, full), 0.0, of_blocks)
    return whole * (1 - reduced * (1 - 1 / shard))


def unsynced_buffer_bytes(moment: Moment, sharding: Sharding, made: Made) -> float:
    """Return bytes beside the kept gradients: gathered parameters, and gradients on their way.

    Args:
        moment: where in the step.
        sharding: the units.
        made: which gradients of this micro-batch there are.
    """
    width, root = sharding.gather_bytes, sharding.units[None]
    if moment.phase != "backward":
        return buffer_bytes(moment, sharding, made)
    if moment.final:
        return width * (root.padded(sharding.shard) + 2 * root.trainable)
    joined = 0.0
    if moment.unit is not None and made.block >= 1:
        joined = width * sharding.units[moment.unit].trainable
    return joined + buffer_bytes(replace(moment, previous=None), sharding, made)
