"""Memory of one rank when stages, tensor and context ranks divide a step.

Every storage is held in the share of the kernel that made it (`split`): what lies between a column
and a row layer by tensor ranks, the residual stream too with sequence parallelism, everything by
context ranks (Korthikanti et al. 2022, arXiv:2205.05198, equations 2 and 4). A stage holds the
activations of its own layers, once for every micro-batch in flight (`pipeline_stages.in_flight`).
Parameters and what belongs to them are those of `rank_parameters`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...profiles.profile import CATEGORIES, MemoryStream, Profile
from ..parallelism.pipeline_stages import in_flight, stage_of_instances
from ..parallelism.rank_parameters import RankUnits, data_layout
from ..parallelism.rank_trace import SplitTrace
from ..parallelism.sequence_parallel import with_gathered
from ..plan.layout import Layout
from ..software.state_bytes import StateScale
from .plateaus import Envelope, envelope
from .rank_memory import RankMemory, rank_memory

Array = np.ndarray

ACTIVATIONS = CATEGORIES.index("activations")
INPUTS = CATEGORIES.index("inputs")


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
                units=(*units[stage].dense[:-1], *units[stage].experts, units[stage].dense[-1]),
            )
        )
    return found


def checked_stages(layout: Layout) -> list[int]:
    """Return the stages that can be the fullest: both ends, and the second."""
    return sorted({0, min(1, layout.pipeline - 1), layout.pipeline - 1})


def stage_envelope(
    share: SplitTrace, layout: Layout, stage: int, micro_batches: Array, grad_accum: int
) -> Envelope:
    """Return the plateaus of one stage's step, other micro-batches in flight included."""
    trace = share.trace
    stages = stage_of_instances(trace, layout)
    stream = stage_stream(share, stages, stage, layout.context)
    shape = envelope(trace.model_copy(update={"memory": stream}), micro_batches)
    others = in_flight(stage, layout, grad_accum) - 1
    if others <= 0:
        return shape
    held = saved_bytes(stream, _turning_tick(share, stages, stage), micro_batches)
    return replace(shape, activation_bytes=shape.activation_bytes + others * held[None, :])


def stage_stream(share: SplitTrace, stages: Array, stage: int, context: int = 1) -> MemoryStream:
    """Return the storages of one stage, each in the rank's share."""
    trace, stream = share.trace, share.trace.memory
    instance = np.asarray(stream.instance)
    entered = np.asarray(stream.entered if stream.entered else [-1] * len(instance))
    birth = np.asarray(stream.birth_tick)
    inside = instance >= 0
    of_stage = np.where(inside, stages[np.maximum(instance, 0)], stage)
    # A stage keeps what its layers receive from the stage before.
    received = (entered >= 0) & (stages[np.maximum(entered, 0)] == stage)
    # The optimizer's temporaries and the batch are every stage's.
    kept = (of_stage == stage) | (of_stage < 0) | received
    base = np.asarray(stream.bytes_base, dtype=float)
    per_sample = np.asarray(stream.bytes_per_sample, dtype=float)
    for row in np.flatnonzero(kept):
        at = instance[row]
        if at < 0:
            per_sample[row] /= context
            continue
        segment = trace.segments[trace.schedule[at]]
        shares = share.output_shares[trace.schedule[at]]
        if not segment.offsets or not shares:
            per_sample[row] /= context  # Which kernel made it is not known.
            continue
        offset = birth[row] - trace.start_tick[at]
        index = bisect_right(segment.offsets, offset) - 1
        weights, tokens = shares[min(max(index, 0), len(shares) - 1)]
        base[row] *= weights
        per_sample[row] *= tokens

    def column(values: Sequence[int]) -> list[int]:
        return np.asarray(values)[kept].tolist() if values else []

    found = stream.model_copy(
        update={
            "birth_tick": birth[kept].tolist(),
            "death_tick": column(stream.death_tick),
            "bytes_base": np.ceil(base[kept]).astype(int).tolist(),
            "bytes_per_sample": np.ceil(per_sample[kept]).astype(int).tolist(),
            "category": column(stream.category),
            "instance": column(stream.instance),
            "producer": column(stream.producer),
            "entered": column(stream.entered),
            "outside_tick": column(stream.outside_tick),
            "inside_tick": column(stream.inside_tick),
            "kept": column(stream.kept),
        }
    )
    return with_gathered(found, trace, share.gathered, (stages == stage).tolist())


def saved_bytes(stream: MemoryStream, tick: int, micro_batches: Array) -> Array:
    """Return [B] activations that one micro-batch keeps between its two passes."""
    birth, death = np.asarray(stream.birth_tick), np.asarray(stream.death_tick)
    category = np.asarray(stream.category)
    per_sample = np.asarray(stream.bytes_per_sample, dtype=float)
    alive = (birth < tick) & (death >= tick)
    saved = alive & ((category == ACTIVATIONS) | (category == INPUTS)) & (per_sample > 0)
    base = np.asarray(stream.bytes_base, dtype=float)[saved].sum()
    return base + per_sample[saved].sum() * micro_batches


def _turning_tick(share: SplitTrace, stages: Array, stage: int) -> int:
    """Return when a stage's backward pass starts."""
    trace = share.trace
    for at, (index, of) in enumerate(zip(trace.schedule, stages, strict=True)):
        if of == stage and trace.segments[index].phase in ("recompute", "backward"):
            return trace.start_tick[at]
    return trace.memory.end_tick


def _with_state(
    shape: Envelope, profile: Profile, units: RankUnits, layout: Layout, state: StateScale
) -> Envelope:
    """Return the envelope with the state of a rank's parameters instead of the whole model's.

    Sharded state is given times the shard degree, for `rank_memory` divides by it.
    """
    whole, trained = profile.parameters, max(1, profile.trainable_parameters)
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
    trained = max(1, profile.trainable_parameters)
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
