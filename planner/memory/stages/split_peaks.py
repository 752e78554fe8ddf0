"""Memory peaks of many pipelines and data dimensions at once, arrays instead of objects.

What `stage_memory` and `rank_memory` say of one stage of one layout is said here of all stages [K]
of the pipelines of one split and of every sharding [Z] of their data dimension; the tests hold the
two to each other. The plateaus of all stages [N] lie one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...parallelism.fsdp import Made, Sharding, Unit, buffer_bytes
from ...software.state_bytes import StateScale
from ..rank_memory import DDP_BUCKET_BYTES
from .memory import group_names
from .tables import Stages

Array = np.ndarray


class Shards(NamedTuple):
    """A data dimension as memory sees it."""

    shard: int
    ranks: int
    """Data times context ranks."""
    expert_shard: int
    """Ranks that share one copy of an expert's state."""


class _Sizes(NamedTuple):
    """A unit of several stages under several shardings, as `buffer_bytes` asks for it."""

    whole: Array
    """[Z, n] padded elements."""
    trained: Array
    trainable: Array
    """[n]"""

    def padded(self, shard: int, *, trainable: bool = False) -> Array:
        return self.trained if trainable else self.whole

    def at(self, stages: Array) -> _Sizes:
        return _Sizes(self.whole[:, stages], self.trained[:, stages], self.trainable[stages])


def peak_bytes(
    stages: Stages,
    zero_stage: int,
    shards: Sequence[Shards],
    *,
    compute_bytes: int,
    state: StateScale,
) -> Array:
    """Return [A, Z, K, B] allocated bytes at the peak of each stage.

    Args:
        stages: [K], with [A] ways of accumulating.
        zero_stage: of the data dimensions.
        shards: [Z] ranks that share a copy; all of them more than one, or all one.
        compute_bytes: bytes per parameter that FSDP gathers.
        state: what is kept relative to the trace.
    """
    sharded = zero_stage > 0 and shards[0].shard > 1
    gathers = sharded and (zero_stage == 3 or (zero_stage == 2 and state.zero_2_gathers))
    constant, stepped = _state(stages, zero_stage, shards, state, gathers=gathers)
    padding = _padding(stages, shards)[:, stages.owner] if gathers else np.ones((1, 1))
    kept = _kept_gradients(stages, zero_stage, shards, sharded=sharded, gathers=gathers)
    held = (padding * state.gradients)[None] * kept
    stays_whole = sharded and zero_stage == 3 and state.whole_in_stages
    during = stages.is_staged[stages.owner] & ~stages.optimizing & stays_whole
    if sharded and zero_stage >= 2:
        held = held + _buffers(
            stages,
            zero_stage,
            shards,
            compute_bytes=compute_bytes,
            state=state,
            gathers=gathers,
            wanted=~during,
        )
    if not gathers:
        held = held + stages.weight_copies
    if during.any():
        whole = _whole_stages(stages, shards, compute_bytes=compute_bytes, state=state)
        held = np.where(during, whole, held)
    stepping = stages.stepping_bytes(stepped)
    peaks = [
        _highest(stages, beside, own, steps)
        for beside, own, steps in zip(stages.beside, held, stepping, strict=True)
    ]
    return np.stack(peaks) + constant[None, :, :, None]


def _highest(stages: Stages, beside: Array, held: Array, stepping: Array) -> Array:
    """Return [Z, K, B] the largest sum of each stage.

    Most plateaus are the highest under no sharding, which a bound tells once for all: where even
    the most that is held leaves one below what another reaches with the least.

    Args:
        stages: [K], with plateaus [N].
        beside: [B, N] bytes that no sharding changes, outside the optimizer's step.
        held: [Z or 1, N] bytes that shardings hold.
        stepping: [Z, B, S] bytes during the optimizer's step, without what is held.
    """
    reached = stages.highest(beside + held.min(axis=0))
    may_be = (beside + held.max(axis=0) >= reached[:, stages.owner]).any(axis=0)
    may_be |= stages.optimizing
    places = np.flatnonzero(may_be)
    owner = stages.owner[places]
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    steps = np.flatnonzero(stages.optimizing[places])
    beside, held = beside[:, places], held[:, places]
    peaks = np.empty((len(stepping), len(stages.shapes), len(beside)))
    for z, stepping_bytes in enumerate(stepping):
        own = held[min(z, len(held) - 1)]
        total = beside + own
        total[:, steps] = stepping_bytes + own[steps]
        peaks[z] = np.maximum.reduceat(total, begins, axis=1).T
    return peaks


def _state(
    stages: Stages,
    zero_stage: int,
    shards: Sequence[Shards],
    state: StateScale,
    *,
    gathers: bool,
) -> tuple[Array, Array]:
    """Return [Z, K] bytes of parameters and optimizer state, and what scales the temporaries."""
    profile, traced = stages.profile, stages.shapes[0].envelope.persistent_bytes
    trained = max(1, profile.trained_parameters)
    shard = np.array([[one.shard] for one in shards], dtype=float)
    over = np.array([[one.expert_shard] for one in shards], dtype=float)
    dense, experts, dense_trained, experts_trained = stages.parameters
    whole = (dense + experts)[None, :]
    if zero_stage == 3 or gathers:
        whole = dense / shard + experts / over
    stepped = (dense_trained + experts_trained)[None, :] / trained * np.ones_like(shard)
    if zero_stage:
        stepped = (dense_trained / shard + experts_trained / over) / trained
    padding = _padding(stages, shards) if gathers else 1.0
    parameters = padding * state.parameters * traced["parameters"] * whole / profile.parameters
    master = state.master_bytes * profile.trainable_parameters
    optimizer = padding * (state.optimizer * traced["optimizer"] + master) * stepped
    return parameters + optimizer, state.optimizer_temporary * stepped


def _padding(stages: Stages, shards: Sequence[Shards]) -> Array:
    """Return [Z, K] sharded elements of the first rank, times `shard`, over those of the stage."""
    sizes = tuple(one.shard for one in shards)
    # Stages that are alike have the same units, which are compared by identity.
    found = {
        units: sum(unit.count * _padded(unit, sizes, trainable=False) for unit in units)
        / max(1, sum(unit.count * unit.parameters for unit in units))
        for units in dict.fromkeys(stages.fsdp_units)
    }
    return np.stack([found[units] for units in stages.fsdp_units], axis=1)


@lru_cache(maxsize=65536)
def _padded(unit: Unit, shards: tuple[int, ...], *, trainable: bool) -> Array:
    return np.array([unit.padded(shard, trainable=trainable) for shard in shards], dtype=float)


def _kept_gradients(
    stages: Stages, zero_stage: int, shards: Sequence[Shards], *, sharded: bool, gathers: bool
) -> Array:
    """Return [A, Z, N] gradient bytes that a rank keeps (`rank_memory`)."""
    every, block, root, full = stages.gradients
    accumulates = stages.accumulates[:, None, stages.owner]
    whole = full[stages.owner]
    if zero_stage <= 1 or not sharded:
        several = np.array([one.ranks > 1 for one in shards])[None, :, None]
        return np.where(several | accumulates, whole, every)
    once = every
    if gathers:
        # Neither the block's nor the root's gradients are reduced yet.
        unreduced = block + np.where(stages.reduced_late, 0.0, root)
        once = np.maximum(0.0, every - unreduced)
    shard = np.array([one.shard for one in shards], dtype=float)[None, :, None]
    return np.where(accumulates, whole, once) / shard


def _buffers(
    stages: Stages,
    zero_stage: int,
    shards: Sequence[Shards],
    *,
    compute_bytes: int,
    state: StateScale,
    gathers: bool,
    wanted: Array,
) -> Array:
    """Return [A or 1, Z or 1, N] bytes of whole parameters and gradients held for a while.

    Where they are not wanted, [N], they may be 0.
    """
    owner, (_, block, root, full) = stages.owner, stages.gradients
    if not gathers:
        bucket = np.minimum(DDP_BUCKET_BYTES, full)[owner]
        return np.where(stages.backward, 2 * bucket, 0.0)[None, None]
    sizes = tuple(one.shard for one in shards)
    per_gradient, width = stages.per_gradient, stages.reduced_width(state)
    found = np.zeros((len(sizes), len(owner)))
    by_name = {
        name: _sizes([named[name] for named in stages.named], sizes)
        for name in (None, *group_names(stages.profile))
    }
    for moment, all_places in stages.moments.items():
        places = all_places[wanted[all_places]]
        if not len(places):
            continue
        ks = owner[places]
        near = {None, moment.unit, moment.previous, moment.following}
        named = {name: by_name[name].at(ks) for name in near if name in by_name}
        made = Made(
            root=_share(root[places], per_gradient[ks] * named[None].trainable),
            block=_share(block[places], per_gradient[ks] * named[moment.unit].trainable),
        )
        found[:, places] = buffer_bytes(
            moment,
            Sharding(units=named, shard=0, gather_bytes=compute_bytes),
            made,
            keeps_blocks=zero_stage == 2,
            reduce_bytes=width[ks],
        )
    if zero_stage == 2:
        return _with_kept_blocks(found, stages, by_name, compute_bytes, state)
    return found[None]


def _with_kept_blocks(
    held: Array,
    stages: Stages,
    by_name: dict[str | None, _Sizes],
    compute_bytes: int,
    state: StateScale,
) -> Array:
    """Return [A or 1, Z, N] buffers with the blocks that ZeRO-2 keeps whole (`rank_memory`).

    Args:
        held: [Z, N] buffers without them.
        stages: whose plateaus they are.
        by_name: sizes of the units.
        compute_bytes: per gathered parameter.
        state: whether blocks stay whole between micro-batches.
    """
    owner = stages.owner
    whole = {name: compute_bytes * sizes.whole for name, sizes in by_name.items()}
    first = held + sum(
        count * whole[name][:, owner] for name, count in stages.held_blocks().items()
    )
    if not (state.keeps_gathered and stages.accumulates.any()):
        return first[None]
    every = np.zeros_like(whole[None])
    for name in group_names(stages.profile):
        every += np.array([named[name].count for named in stages.named]) * whole[name]
    later = np.where(stages.forward, whole[None][:, owner], held) + every[:, owner]
    later = np.maximum(first, np.where(stages.optimizing, 0.0, later))
    return np.where(stages.accumulates[:, None, owner], later[None], first[None])


def _whole_stages(
    stages: Stages, shards: Sequence[Shards], *, compute_bytes: int, state: StateScale
) -> Array:
    """Return [A, Z, N] bytes of gradients and of gathered parameters of whole stages."""
    w, sizes, owner = compute_bytes, tuple(one.shard for one in shards), stages.owner
    _, block, root, _ = stages.gradients
    per_gradient = np.maximum(1e-9, stages.per_gradient)
    width = stages.reduced_width(state)
    ends = np.array([units[-1].trainable for units in stages.fsdp_units], dtype=float)
    made = np.where(stages.backward, (block + root) / per_gradient[owner], 0.0)
    made = np.where(stages.final, ends[owner], made)
    both = list(zip(stages.fsdp_units, width.tolist(), strict=True))
    places = {one: i for i, one in enumerate(dict.fromkeys(both))}
    at = [places[one] for one in both]
    pairs = [_gathered_and_reduced(units, sizes, w, own) for units, own in places]
    gathered, reduced = (np.stack(column, axis=1)[:, at] for column in zip(*pairs, strict=True))
    gradients = stages.gradient_share * width * stages.trainable
    held = gathered[:, owner] + w * made + np.where(stages.final, reduced[:, owner], 0.0)
    return gradients[:, None, owner] + held[None]


def _gathered_and_reduced(
    units: tuple[Unit, ...], shards: tuple[int, ...], gather_bytes: int, width: int
) -> tuple[Array, Array]:
    """Return [Z] `gathered_bytes` and `reduced_bytes` of a stage under every sharding."""
    counts = np.array([[unit.count] for unit in units], dtype=float)
    padded = gather_bytes * np.stack([_padded(unit, shards, trainable=False) for unit in units])
    trained = width * np.stack([_padded(unit, shards, trainable=True) for unit in units])
    return (counts * padded).sum(axis=0), np.maximum(0.0, (trained - padded).max(axis=0))


def _sizes(units: Sequence[Unit], shards: tuple[int, ...]) -> _Sizes:
    distinct = list(dict.fromkeys(units))
    of = {unit: i for i, unit in enumerate(distinct)}
    index = np.array([of[unit] for unit in units])
    return _Sizes(
        whole=np.stack([_padded(u, shards, trainable=False) for u in distinct], axis=1)[:, index],
        trained=np.stack([_padded(u, shards, trainable=True) for u in distinct], axis=1)[:, index],
        trainable=np.array([unit.trainable for unit in distinct], dtype=float)[index],
    )


def _share(made_bytes: Array, full: Array) -> Array:
    """Return the part of a unit's gradients that is made: 0 of a frozen one, which has none.

    >>> _share(np.array([3e9, 3e9, 9e9]), np.array([0.0, 6e9, 6e9])).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.minimum(1.0, made_bytes / np.where(full > 0, full, np.inf))
