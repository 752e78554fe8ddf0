"""Memory per rank: what each ZeRO stage keeps, gathers and throws away, plateau by plateau.

Sources: Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, table 1 and section 5) for what each stage
shards; torch `fully_shard` (torch 2.13, torch/distributed/fsdp/_fully_shard) for the buffers that
gathering and reducing hold, checked against traces of it in tests/planner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial

import numpy as np

from ...profiles.profile import Profile
from ..parallelism.fsdp import REDUCE_BYTES, Made, Moment, Sharding, Unit, buffer_bytes, units_of
from ..plan.layout import Layout
from ..software.state_bytes import AS_TRACED, StateScale
from .no_sync import kept_gradient_bytes, unsynced_buffer_bytes
from .plateaus import Array, Envelope
from .stages.whole import gathered_bytes, reduced_bytes

DDP_BUCKET_BYTES = 25 * 2**20
"""torch DistributedDataParallel's default `bucket_cap_mb`."""


@dataclass(frozen=True)
class RankMemory:
    """Bytes on the fullest rank by micro-batch [B], split at the moment of the peak."""

    parameters_bytes: Array
    gradients_bytes: Array
    optimizer_bytes: Array
    activations_bytes: Array
    temporary_bytes: Array

    @property
    def peak_bytes(self) -> Array:
        """[B] bytes that the allocator has handed out at the peak."""
        return (
            self.parameters_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.temporary_bytes
        )

    def towards(self, other: RankMemory, share: float) -> RankMemory:
        """Return what lies between this (share 0) and another (share 1), on a straight line."""
        pairs = {
            one.name: (getattr(self, one.name), getattr(other, one.name)) for one in fields(self)
        }
        return RankMemory(**{name: a + share * (b - a) for name, (a, b) in pairs.items()})

    def beside(self, buffer_bytes: float) -> RankMemory:
        """Return the same with buffers that are held all the time."""
        return replace(self, temporary_bytes=self.temporary_bytes + buffer_bytes)


def rank_memory(
    shape: Envelope,
    profile: Profile,
    layout: Layout,
    *,
    compute_bytes: int,
    grad_accum: int = 1,
    state: StateScale = AS_TRACED,
    units: Sequence[Unit] | None = None,
    reduces_once: bool = False,
    gradient_share: float = 1.0,
) -> RankMemory:
    """Return memory of the fullest rank at every micro-batch of the envelope.

    Args:
        shape: plateaus of the (possibly recomputed) step.
        profile: parameters by unit.
        layout: only its data dimension is used here.
        compute_bytes: bytes per parameter that FSDP gathers (2 for 16-bit compute, else 4).
        grad_accum: with more than one micro-batch, gradients live through the forward passes too.
        state: what is kept relative to the trace.
        units: FSDP units of the rank, the root last; None for those of the whole model.
        reduces_once: whether FSDP leaves gradients whole until the last micro-batch (`no_sync`).
        gradient_share: part of a pipeline stage's gradients that is whole at one time.
    """
    units = units_of(profile) if units is None else units
    gathers = state.gathers_parameters(layout)
    optimizing = shape.is_optimizing[:, None]
    padding = _padding(units, layout.shard) if gathers else 1.0
    parameters, optimizer = _state_bytes(shape, profile, layout, state, padding)
    gradients = _kept_gradients(shape, layout, grad_accum, state, padding)
    unsynced = reduces_once and layout.zero_stage == 3 and gathers and grad_accum > 1
    if unsynced:
        whole = kept_gradient_bytes(
            shape,
            units_by_name(units),
            shard=layout.shard,
            width=compute_bytes,
            grad_accum=grad_accum,
        )
        gradients = np.where(optimizing, gradients, whole[:, None])
    width = gradient_width(shape, units, state)
    if state.holds_whole(layout):
        whole, gathered = _of_whole_stage(shape, units, layout.shard, compute_bytes, width)
        gradients = np.where(optimizing, gradients, gradient_share * whole)
    else:
        gathered = _sharding_buffers(
            shape,
            units,
            layout,
            compute_bytes,
            gathers,
            None if unsynced else width,
            stays=state.keeps_gathered and grad_accum > 1,
        )[:, None]
    stepped = state.optimizer_temporary / (layout.shard if layout.zero_stage >= 1 else 1)
    return _at_peak(
        parameters=parameters,
        optimizer=optimizer,
        gradients=gradients,
        gathered=gathered,
        copies=shape.weight_copy_bytes[:, None] * (0 if gathers else 1),
        temporary=shape.temporary_bytes * np.where(optimizing, stepped, 1),
        activations=_activation_bytes(shape),
    )


def _kept_gradients(
    shape: Envelope, layout: Layout, grad_accum: int, state: StateScale, padding: float
) -> Array:
    """Return [P, 1] bytes of the gradients that a rank keeps, with what it copies into buckets."""
    kept = _gradient_bytes(shape, layout, grad_accum, state.gathers_parameters(layout))
    if state.copies_buckets and layout.data > 1 and layout.zero_stage <= 1:
        made = shape.gradient_bytes if grad_accum == 1 else shape.full_gradient_bytes
        kept = kept + made
    return padding * state.gradients * kept[:, None]


def _activation_bytes(shape: Envelope) -> Array:
    """Return [P, B] bytes of the activations with the batch and the model's buffers."""
    activations = shape.activation_bytes + shape.input_bytes + shape.persistent_bytes["buffers"]
    return activations + shape.persistent_bytes["inputs"]


def _of_whole_stage(
    shape: Envelope, units: Sequence[Unit], shard: int, compute_bytes: int, width: int
) -> tuple[float, Array]:
    """Return bytes of a stage's gradients, and [P, 1] of what else is whole (`whole_stages`)."""
    trainable = sum(unit.count * unit.trainable for unit in units)
    per_gradient = max(1e-9, shape.full_gradient_bytes / max(1, trainable))
    backward = np.array([m.phase == "backward" for m in shape.moments])
    final = np.array([m.final for m in shape.moments])
    made = np.where(backward, shape.block_gradient_bytes + shape.root_gradient_bytes, 0.0)
    made = np.where(final, per_gradient * units[-1].trainable, made)
    held = gathered_bytes(units, shard, compute_bytes) + compute_bytes * made / per_gradient
    held = held + np.where(final, reduced_bytes(units, shard, compute_bytes, width), 0.0)
    return width * trainable, np.where(shape.is_optimizing, 0.0, held)[:, None]


def _state_bytes(
    shape: Envelope, profile: Profile, layout: Layout, state: StateScale, padding: float
) -> tuple[float, float]:
    """Return bytes of the parameters and of the optimizer's state that a rank keeps throughout."""
    shard, stage = layout.shard, layout.zero_stage
    divided = stage == 3 or state.gathers_parameters(layout)
    parameters = state.parameters * shape.persistent_bytes["parameters"]
    optimizer = state.optimizer * shape.persistent_bytes["optimizer"]
    optimizer += state.master_bytes * profile.trainable_parameters
    return (
        padding * parameters / (shard if divided else 1),
        padding * optimizer / (shard if stage >= 1 else 1),
    )


def _at_peak(
    *,
    parameters: float,
    optimizer: float,
    gradients: Array,
    gathered: Array,
    copies: Array,
    temporary: Array,
    activations: Array,
) -> RankMemory:
    """Return every part on the plateau where all of them together are the largest.

    What depends on the micro-batch is [P, B], the other arrays are [P, 1].
    """
    total = parameters + optimizer + gradients + gathered + copies + temporary + activations
    peak = total.argmax(axis=0)
    columns = np.arange(total.shape[1])
    ones = np.ones(total.shape[1])
    return RankMemory(
        parameters_bytes=parameters * ones + (gathered + copies)[peak, 0],
        gradients_bytes=gradients[peak, 0] * ones,
        optimizer_bytes=optimizer * ones,
        activations_bytes=activations[peak, columns],
        temporary_bytes=temporary[peak, columns],
    )


def _padding(units: Sequence[Unit], shard: int) -> float:
    """Return sharded elements of the first rank, times `shard`, over those of the model."""
    whole = sum(unit.count * unit.parameters for unit in units)
    return sum(unit.count * unit.padded(shard) for unit in units) / max(1, whole)


def gradient_width(shape: Envelope, units: Sequence[Unit], state: StateScale) -> int:
    """Return bytes of one gradient that is kept, and so reduced; fp32 where none is."""
    trainable = sum(unit.count * unit.trainable for unit in units)
    kept = state.gradients * shape.full_gradient_bytes / max(1, trainable)
    return 2 if 0 < kept < 3 else REDUCE_BYTES


def _gradient_bytes(shape: Envelope, layout: Layout, grad_accum: int, gathers: bool) -> Array:
    """Return [P] gradient bytes that a rank keeps.

    DDP keeps every gradient as a view of its buckets, allocated once (gradient_as_bucket_view);
    what lies apart from them is the caller's (`StateScale.copies_buckets`, of records alone).
    ZeRO-2 and FSDP keep a shard; what is whole for a while is among the sharding buffers.
    """
    full = shape.full_gradient_bytes
    if layout.zero_stage <= 1 or layout.shard == 1:
        held_throughout = layout.data > 1 or grad_accum > 1
        return np.full(len(shape.moments), full) if held_throughout else shape.gradient_bytes
    if grad_accum > 1:
        return np.full(len(shape.moments), full) / layout.shard
    kept = shape.gradient_bytes
    if gathers:
        # Neither the block's nor the root's gradients are reduced yet.
        last = np.array([moment.has_reduced for moment in shape.moments], dtype=bool)
        unreduced = shape.block_gradient_bytes + np.where(last, 0.0, shape.root_gradient_bytes)
        kept = np.maximum(0.0, kept - unreduced)
    return kept / layout.shard


def _sharding_buffers(
    shape: Envelope,
    units: Sequence[Unit],
    layout: Layout,
    compute_bytes: int,
    gathers: bool,
    reduce_bytes: int | None,
    *,
    stays: bool,
) -> Array:
    """Return [P] bytes of whole parameters and gradients that sharding holds for a while.

    No `reduce_bytes` means that gradients stay whole (`no_sync`); `stays`, that what ZeRO-2
    gathered in a micro-batch stays for the next.
    """
    if layout.shard == 1 or layout.zero_stage < 2:
        return np.zeros(len(shape.moments))
    if not gathers:
        # A bucket of gradients and its reduced copy, while backward runs.
        bucket = min(DDP_BUCKET_BYTES, shape.full_gradient_bytes)
        backward = np.array([m.phase == "backward" for m in shape.moments])
        return np.where(backward, 2 * bucket, 0.0)
    named = units_by_name(units)
    sharding = Sharding(units=named, shard=layout.shard, gather_bytes=compute_bytes)
    bytes_at = (
        unsynced_buffer_bytes
        if reduce_bytes is None
        else partial(buffer_bytes, keeps_blocks=layout.zero_stage == 2, reduce_bytes=reduce_bytes)
    )
    made = _gradients_made(shape, tuple(units))
    found = np.array([bytes_at(moment, sharding, parts) for moment, parts in made.distinct])
    found = found[made.index]
    if layout.zero_stage == 2:
        return _with_kept_blocks(found, shape, named, layout.shard, compute_bytes, stays=stays)
    return found


def _with_kept_blocks(
    held: Array,
    shape: Envelope,
    units: dict[str | None, Unit],
    shard: int,
    compute_bytes: int,
    *,
    stays: bool,
) -> Array:
    """Return [P] sharding buffers with the blocks that ZeRO-2 keeps whole.

    Args:
        held: [P] buffers without them.
        shape: the plateaus.
        units: by name.
        shard: ranks that share one copy.
        compute_bytes: per gathered parameter.
        stays: whether a micro-batch leaves what it gathered to the next, which has all of it then
            from its start to its end.
    """
    whole = {name: compute_bytes * unit.padded(shard) for name, unit in units.items()}
    first = held + sum(count * whole[name] for name, count in shape.blocks_held.items())
    if not stays:
        return first
    every = sum(unit.count * whole[name] for name, unit in units.items() if name is not None)
    forward = np.array([moment.phase == "forward" for moment in shape.moments])
    later = every + np.where(forward, whole[None], held)
    return np.maximum(first, np.where(shape.is_optimizing, 0.0, later))


@dataclass(frozen=True, kw_only=True)
class _GradientsMade:
    """The moments of the plateaus, with the parts of the gradients that are made."""

    distinct: tuple[tuple[Moment, Made], ...]
    index: Array
    """[P] which of the distinct ones each plateau is."""


@lru_cache(maxsize=64)
def _gradients_made(shape: Envelope, units: tuple[Unit, ...]) -> _GradientsMade:
    # Hundreds of plateaus share a dozen moments, and a search asks for them under every layout.
    named = units_by_name(units)
    trainable = sum(unit.count * unit.trainable for unit in units)
    per_gradient = shape.full_gradient_bytes / max(1, trainable)
    roots, blocks = shape.root_gradient_bytes.tolist(), shape.block_gradient_bytes.tolist()
    places: dict[tuple[Moment, Made], int] = {}
    index = []
    for moment, root, own in zip(shape.moments, roots, blocks, strict=True):
        made = Made(
            root=_share(root, named[None], per_gradient),
            block=_share(own, named[moment.unit], per_gradient),
        )
        index.append(places.setdefault((moment, made), len(places)))
    return _GradientsMade(distinct=tuple(places), index=np.array(index))


def units_by_name(units: Sequence[Unit]) -> dict[str | None, Unit]:
    """Return the units by block group; a block's experts are gathered with the rest of it."""
    named: dict[str | None, Unit] = {}
    for unit in units:
        one = named.get(unit.name)
        named[unit.name] = (
            unit
            if one is None
            else replace(
                one,
                parameters=one.parameters + unit.parameters,
                trainable=one.trainable + unit.trainable,
                tensors=(),
            )
        )
    return named


def _share(gradient_bytes: float, unit: Unit, bytes_per_gradient: float) -> float:
    """Return the part of a unit's gradients that is made."""
    full = bytes_per_gradient * unit.trainable
    return min(1.0, gradient_bytes / full) if full else 0.0
