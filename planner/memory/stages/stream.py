"""The storages of a split step as arrays: when each lives, and how it grows.

Tensor degrees, and precisions that trace alike, change how large the storages are and not when they
live. What follows from the latter alone (`stage_cuts`) is therefore shared by all equal `Storages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from hashlib import blake2b

import numpy as np

from ....profiles.profile import CATEGORIES
from ...parallelism.fsdp import Moment
from ...parallelism.rank_trace import SplitTrace
from ...parallelism.sequence_parallel import with_gathered
from ..plateaus import moments_of, rounded, with_kept

Array = np.ndarray

ACTIVATIONS = CATEGORIES.index("activations")
INPUTS = CATEGORIES.index("inputs")
_GROWTH = ("bytes_base", "bytes_per_sample", "bytes_per_pair", "bytes_per_triple")
GROUPS = ("gradients", "weight_copies", "activations", "inputs", "temporary")
_GROUP_OF = {
    "gradients": "gradients",
    "activations": "activations",
    "inputs": "inputs",
    "buffers": "inputs",
}
"""Which total a category counts to; the rest, of the optimizer and temporaries, is temporary."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Storages:
    """When the storages of a rank's share live, were all layers on it; equal for equal contents."""

    birth: Array
    death: Array
    group: Array
    """Index into `GROUPS`."""
    saved: Array
    """Whether it can wait for the backward pass: an activation or part of the batch."""
    instance: Array
    entered: Array
    starts: Array
    """[I + 1] ticks at which the instances of the schedule start, and the end."""
    segments: Array
    """[I] of the schedule."""
    optimizes: Array
    """[I] whether the optimizer runs."""
    turns_back: Array
    """[I] whether an instance belongs to the backward pass."""
    in_backward: Array
    """[I] whether it is the backward pass of a block."""
    begun: dict[str, Array]
    """[I] by block group, whether the forward pass of one of its blocks begins, and"""
    ended: dict[str, Array]
    """whether its backward pass ends."""
    moments: tuple[Moment, ...]
    """The moments that differ."""
    moment: Array
    """[I] which of them an instance is."""

    @cached_property
    def digest(self) -> bytes:
        """What is equal for equal contents."""
        found = blake2b(repr(self.moments).encode(), digest_size=16)
        for one in fields(self):
            value = getattr(self, one.name)
            parts = sorted(value.items()) if isinstance(value, dict) else [(one.name, value)]
            for name, array in parts:
                if isinstance(array, np.ndarray):
                    found.update(f"{one.name} {name} {array.dtype} {array.shape}".encode())
                    found.update(np.ascontiguousarray(array).data)
        return found.digest()

    @cached_property
    def cuts(self) -> dict[bytes, object]:
        """What follows from it for the stages that were asked for (`stage_cuts`)."""
        return {}

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storages) and self.digest == other.digest


@dataclass(frozen=True, kw_only=True, eq=False)
class Streams:
    """The storages of a rank's share, were all layers on it; no machine changes them."""

    storages: Storages
    growth: Array
    """[4, storages] bytes of each, as in an `Affine`."""
    persistent_bytes: dict[str, float]


@lru_cache(maxsize=512)
def streams_of(share: SplitTrace, context: int) -> Streams:
    """Return the storages of a rank's share, each as large as the kernel's share that made it.

    Args:
        share: with what it gathers for a moment.
        context: degree, which divides what no kernel is known to have made.
    """
    trace = share.trace
    memory = trace.memory
    weights, tokens = _shares_of(share, context)
    plain = {
        "birth_tick": np.asarray(memory.birth_tick),
        "death_tick": np.asarray(memory.death_tick),
        **{
            name: np.ceil(np.asarray(column) * (weights if name == "bytes_base" else tokens))
            for name, column in zip(_GROWTH, memory.growth, strict=True)
        },
        "category": np.asarray(memory.category),
        "instance": np.asarray(memory.instance),
        "entered": np.asarray(memory.entered or [-1] * len(weights)),
    }
    stream = with_gathered(plain, trace, share.gathered)
    birth, death, category = (stream[name] for name in ("birth_tick", "death_tick", "category"))
    growth = np.stack([stream[name] for name in _GROWTH])
    base, grows = growth[0], np.asarray(growth[1:].any(axis=0))
    end_tick = memory.end_tick
    through = (birth < 0) & (death >= end_tick)
    saved = ((category == ACTIVATIONS) | (category == INPUTS)) & grows
    persistent = {
        name: rounded(base[through & (category == i)]) for i, name in enumerate(CATEGORIES)
    }
    moving = ~through
    group = _groups(with_kept(trace, death, category, grows), grows)
    phase = [trace.segments[i].phase for i in trace.schedule]
    block = [trace.segments[i].block for i in trace.schedule]
    names = {name for name in block if name is not None}
    moments = moments_of(trace)
    distinct = {one: i for i, one in enumerate(dict.fromkeys(moments))}
    storages = Storages(
        birth=birth[moving],
        death=death[moving],
        group=group[moving],
        saved=saved[moving],
        instance=stream["instance"][moving],
        entered=stream["entered"][moving],
        starts=np.array([*trace.start_tick, end_tick + 1]),
        segments=np.asarray(trace.schedule),
        optimizes=np.array([one == "optimizer" for one in phase]),
        turns_back=np.array([one in ("recompute", "backward") for one in phase]),
        in_backward=_where(phase, block, "backward", names),
        begun={name: _where(phase, block, "forward", {name}) for name in names},
        ended={name: _where(phase, block, "backward", {name}) for name in names},
        moments=tuple(distinct),
        moment=np.array([distinct[one] for one in moments]),
    )
    return Streams(
        storages=_one_of_equal(storages),
        growth=growth[:, moving],
        persistent_bytes=persistent,
    )


@lru_cache(maxsize=32)
def _one_of_equal(storages: Storages) -> Storages:
    """Return the first of equal ones, so that all share what is made of it."""
    return storages


def _shares_of(share: SplitTrace, context: int) -> tuple[Array, Array]:
    """Return the shares of each storage's (constant, growing) bytes that a rank holds."""
    trace, memory = share.trace, share.trace.memory
    instance, birth = np.asarray(memory.instance), np.asarray(memory.birth_tick)
    weights = np.ones(len(instance))
    tokens = np.full(len(instance), 1 / context)  # Which kernel made it is not known.
    start = np.asarray(trace.start_tick)
    schedule = np.asarray(trace.schedule)
    segment = np.where(instance >= 0, schedule[np.maximum(instance, 0)], -1)
    offset = birth - start[np.maximum(instance, 0)]
    for index, one in enumerate(trace.segments):
        shares = share.output_shares[index]
        if not one.offsets or not shares:
            continue
        rows = np.flatnonzero(segment == index)
        kernel = np.searchsorted(np.asarray(one.offsets), offset[rows], side="right") - 1
        table = np.array(shares)[np.clip(kernel, 0, len(shares) - 1)]
        weights[rows], tokens[rows] = table[:, 0], table[:, 1]
    return weights, tokens


def _groups(category: Array, grows: Array) -> Array:
    codes = np.array(
        [GROUPS.index(_GROUP_OF.get(name, "temporary")) for name in CATEGORIES], dtype=int
    )
    found = codes[category]
    copies = (category == ACTIVATIONS) & ~grows
    return np.where(copies, GROUPS.index("weight_copies"), found)


def _where(
    phases: Sequence[str], blocks: Sequence[str | None], phase: str, names: set[str]
) -> Array:
    pairs = zip(phases, blocks, strict=True)
    return np.array([one == phase and block in names for one, block in pairs])
