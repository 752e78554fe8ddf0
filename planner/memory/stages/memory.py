"""Memory of one rank when stages, tensor and context ranks divide a step.

Every storage is held in the share of the kernel that made it (`split`): what lies between a column
and a row layer by tensor ranks, the residual stream too with sequence parallelism, everything by
context ranks (Korthikanti et al. 2022, arXiv:2205.05198, equations 2 and 4). A stage holds the
activations of its own layers, once for every micro-batch in flight (`pipeline_stages.in_flight`).
Parameters and what belongs to them are those of `rank_parameters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ....profiles.profile import Profile
from ...parallelism.fsdp import Unit
from ...parallelism.pipeline_stages import in_flight, stage_of_instances
from ...parallelism.rank_parameters import RankUnits, data_layout
from ...parallelism.rank_trace import SplitTrace
from ...plan.layout import Layout
from ...software.state_bytes import StateScale
from ..plateaus import Envelope
from ..rank_memory import RankMemory, rank_memory
from .plateaus import sizes_of, stage_shape
from .stream import streams_of
from .whole import gradient_share

Array = np.ndarray


def stage_memories(
    share: SplitTrace,
    profile: Profile,
    units: Sequence[RankUnits],
    layout: Layout,
    *,
    micro_batches: Array,
    compute_bytes: int,
    grad_accum: int,
    state: StateScale,
) -> list[RankMemory]:
    """Return memory of a rank of the stages that can be the fullest: both ends, and the second.

    Args:
        share: a rank's share of the (possibly recomputed) step.
        profile: the whole model.
        units: parameters of a rank, by stage.
        layout: all dimensions.
        micro_batches: [B] sizes.
        compute_bytes: bytes per parameter that FSDP gathers.
        grad_accum: micro-batches per step.
        state: what is kept relative to the trace.
    """
    found = []
    for stage in checked_stages(layout):
        shape = stage_envelope(share, layout, stage, micro_batches, grad_accum)
        found.append(
            rank_memory(
                _with_state(shape, profile, units[stage], layout, state),
                profile,
                data_layout(layout),
                compute_bytes=compute_bytes,
                grad_accum=grad_accum,
                state=_with_master(state, profile, units[stage], layout),
                units=stage_units(units[stage], group_names(profile)),
                gradient_share=gradient_share(units[stage], layout, grad_accum),
            )
        )
    return found


def group_names(profile: Profile) -> tuple[str, ...]:
    """Return the names of the groups of repeated blocks."""
    return tuple(group.name for group in profile.blocks)


@lru_cache(maxsize=4096)
def stage_units(units: RankUnits, groups: tuple[str, ...]) -> tuple[Unit, ...]:
    """Return the FSDP units of a stage, the root last; those of groups it does not run are empty.

    Its first and last block have neighbours on other stages, whose units it does not hold.
    """
    *dense, root = units.dense
    held = {unit.name for unit in (*dense, *units.experts)}
    empty = (
        Unit(name=group, count=0, parameters=0, trainable=0, tensors=())
        for group in groups
        if group not in held
    )
    return (*dense, *units.experts, *empty, root)


def checked_stages(layout: Layout) -> list[int]:
    """Return the stages that can be the fullest: both ends, and the second."""
    return sorted({0, min(1, layout.pipeline - 1), layout.pipeline - 1})


def stage_envelope(
    share: SplitTrace, layout: Layout, stage: int, micro_batches: Array, grad_accum: int
) -> Envelope:
    """Return the plateaus of one stage's step, other micro-batches in flight included."""
    own = stage_of_instances(share.trace, layout) == stage
    streams = streams_of(share, layout.context)
    shape = stage_shape(streams, own, sizes_of(streams, micro_batches))
    others = in_flight(stage, layout, grad_accum) - 1
    if others <= 0:
        return shape.envelope
    # The optimizer steps when all of them are through.
    held = np.where(shape.envelope.is_optimizing[:, None], 0.0, others * shape.saved_bytes[None, :])
    return replace(shape.envelope, activation_bytes=shape.envelope.activation_bytes + held)


def _with_state(
    shape: Envelope, profile: Profile, units: RankUnits, layout: Layout, state: StateScale
) -> Envelope:
    """Return the envelope with the state of a rank's parameters instead of the whole model's.

    Sharded state is given times the shard degree, for `rank_memory` divides by it.
    """
    whole, trained = profile.parameters, max(1, profile.trained_parameters)
    parameters = units.parameters / whole
    if layout.zero_stage == 3 or state.gathers_parameters(data_layout(layout)):
        parameters = units.sharded(layout, trainable=False) * layout.shard / whole
    gradients = units.trainable / trained
    full = shape.gradient_bytes.max(initial=0.0)
    traced = shape.persistent_bytes
    scale = 1.0
    if full:
        per_parameter = 4 if profile_keeps_fp32(traced["parameters"], whole) else 2
        scale = gradients * trained * per_parameter / full
    return replace(
        shape,
        persistent_bytes={
            **traced,
            "parameters": traced["parameters"] * parameters,
            "optimizer": traced["optimizer"] * _optimizer_share(profile, units, layout),
        },
        gradient_bytes=scale * shape.gradient_bytes,
        block_gradient_bytes=scale * shape.block_gradient_bytes,
    )


def profile_keeps_fp32(parameter_bytes: float, parameters: int) -> bool:
    """Return whether the traced parameters, and so their gradients, have four bytes each."""
    return parameter_bytes > 3 * parameters


def _optimizer_share(profile: Profile, units: RankUnits, layout: Layout) -> float:
    trained = max(1, profile.trained_parameters)
    if layout.zero_stage:
        return units.sharded(layout) * layout.shard / trained
    return units.trainable / trained


def _with_master(
    state: StateScale, profile: Profile, units: RankUnits, layout: Layout
) -> StateScale:
    """Return the scale with the master copy of a rank's parameters alone."""
    share = _optimizer_share(profile, units, layout)
    return replace(
        state,
        master_bytes=state.master_bytes * share,
        optimizer_temporary=state.optimizer_temporary * share,
    )
