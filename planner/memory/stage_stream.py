"""The storages of a split step as arrays, and their plateaus on the layers of one pipeline stage.

A stage's memory changes only while its own layers run, and between them nothing of it is larger
than right before or after: only the ticks of its own windows are looked at, strung together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...profiles.profile import CATEGORIES
from ..growth import grown
from ..parallelism.fsdp import Moment
from ..parallelism.rank_trace import SplitTrace
from ..parallelism.sequence_parallel import with_gathered
from .plateaus import (
    ALLOCATION_GRAIN_BYTES,
    Envelope,
    highest_tick,
    moments_of,
    rounded,
    with_kept,
)

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
class Streams:
    """The storages of a rank's share, were all layers on it; no machine changes them."""

    birth: Array
    death: Array
    growth: Array
    """[4, storages] bytes of each, as in an `Affine`."""
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
    persistent_bytes: dict[str, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class StageShape:
    """The plateaus of a stage, and what each further micro-batch in flight adds."""

    envelope: Envelope
    moment: Array
    """[P] which of the moments of the streams each plateau is."""
    saved_bytes: Array
    """[B] activations that one micro-batch keeps between its two passes."""


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
    return Streams(
        birth=birth[moving],
        death=death[moving],
        growth=growth[:, moving],
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
        persistent_bytes=persistent,
    )


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


def stage_shape(
    streams: Streams, own: Array, micro_batches: Array, windows: Sequence[int] | None = None
) -> StageShape:
    """Return the plateaus of the stage that runs these instances.

    Args:
        streams: of a rank's share.
        own: [I] whether the stage runs an instance; the optimizer is every stage's.
        micro_batches: [B] sizes.
        windows: the instances whose plateaus are wanted, some may be twice; None for all.
    """
    own = own | streams.optimizes
    # Index -1, the last entry: what was there before the step is kept, what enters no block is not.
    kept = np.flatnonzero(
        np.append(own, True)[streams.instance] | np.append(own, False)[streams.entered]
    )
    birth, death, sees = _strung(streams, own, kept)
    rows = kept[sees]
    sizes = grown(streams.growth[:, rows], micro_batches)
    sizes = np.ceil(sizes / ALLOCATION_GRAIN_BYTES) * ALLOCATION_GRAIN_BYTES
    lengths = np.where(own, np.diff(streams.starts), 0)
    ticks = int(lengths.sum())
    totals = _running(birth, death, streams.group[rows], sizes, ticks)
    gradients = totals[0][:, 0]
    opened = (np.cumsum(lengths) - lengths)[own]
    changes = np.flatnonzero(np.diff(gradients)) + 1
    starts = np.array(sorted({0, *opened.tolist(), *changes.tolist()}), dtype=int)
    ends = np.append(starts[1:], ticks)
    window = np.searchsorted(opened, starts, side="right") - 1
    instances = np.flatnonzero(own)[window]
    if windows is not None:
        wanted = _places(instances, np.asarray(windows))
        starts, ends, window = starts[wanted], ends[wanted], window[wanted]
        instances = instances[wanted]
    once, again = np.unique(starts, return_inverse=True)
    first = np.zeros(len(once), dtype=int)
    first[again] = np.arange(len(starts))
    transient = totals[1] + totals[2] + totals[3] + totals[4]
    highest = highest_tick(transient, once, ends[first])[again]
    before = gradients[np.maximum(opened[window] - 1, 0)]
    at = np.arange(len(micro_batches))
    moment = streams.moment[instances]
    shape = Envelope(
        micro_batches=micro_batches,
        persistent_bytes=streams.persistent_bytes,
        activation_bytes=totals[2][highest, at],
        temporary_bytes=totals[4][highest, at],
        input_bytes=totals[3][highest, at],
        gradient_bytes=gradients[starts],
        block_gradient_bytes=np.where(
            streams.in_backward[instances], gradients[starts] - before, 0.0
        ),
        weight_copy_bytes=totals[1][highest, at].max(axis=1),
        moments=tuple(streams.moments[i] for i in moment.tolist()),
        blocks_held={name: held[instances] for name, held in _held(streams, own).items()},
    )
    saved = _saved(streams, own, kept, micro_batches)
    return StageShape(envelope=shape, moment=moment, saved_bytes=saved)


def _places(ordered: Array, wanted: Array) -> Array:
    """Return where the wanted values stand in an ordered array, one after the other."""
    first = np.searchsorted(ordered, wanted, side="left")
    many = np.searchsorted(ordered, wanted, side="right") - first
    behind = np.cumsum(many)
    return np.repeat(first - behind + many, many) + np.arange(int(behind[-1]))


def _strung(streams: Streams, own: Array, kept: Array) -> tuple[Array, Array, Array]:
    """Return (birth, death, which storages are seen) on the ticks of the own windows alone."""
    lengths = np.where(own, np.diff(streams.starts), 0)
    opened = np.cumsum(lengths) - lengths
    birth, death = streams.birth[kept], streams.death[kept]

    def strung(ticks: Array) -> tuple[Array, Array]:
        inside = np.clip(ticks, 0, streams.starts[-1] - 1)
        window = np.searchsorted(streams.starts, inside, side="right") - 1
        found = opened[window] + np.where(own[window], inside - streams.starts[window], 0)
        return np.where(ticks >= streams.starts[-1] - 1, lengths.sum() - 1, found), own[window]

    born, at_home = strung(birth)
    gone, _ = strung(death)
    gone = np.where(at_home, np.maximum(gone, born + 1), gone)
    sees = gone > born
    return born[sees], gone[sees], sees


def _running(birth: Array, death: Array, group: Array, sizes: Array, ticks: int) -> Array:
    """Return [groups, ticks, B] live bytes."""
    places = np.concatenate([birth, death]) + np.tile(group, 2) * (ticks + 1)
    length = len(GROUPS) * (ticks + 1)
    change = np.stack(
        [
            np.bincount(places, weights=np.concatenate([size, -size]), minlength=length)
            for size in sizes.T
        ]
    )
    # Time runs innermost, so that sums over it, and of groups, go through memory in order.
    totals = np.cumsum(change.reshape(len(sizes.T), len(GROUPS), -1)[:, :, :ticks], axis=2)
    return totals.transpose(1, 2, 0)


def _held(streams: Streams, own: Array) -> dict[str, Array]:
    """Return by group and instance how many of the stage's blocks hold what they gathered."""
    found = {}
    for name, begun in streams.begun.items():
        ended = own & streams.ended[name]
        # A block that ends here holds its parameters to the end.
        found[name] = np.cumsum(own & begun) - np.cumsum(ended) + ended
    return found


def _saved(streams: Streams, own: Array, kept: Array, micro_batches: Array) -> Array:
    turning = np.flatnonzero(own & streams.turns_back)
    tick = streams.starts[turning[0]] if len(turning) else streams.starts[-1] - 1
    alive = (streams.birth[kept] < tick) & (streams.death[kept] >= tick) & streams.saved[kept]
    rows = kept[alive]
    return grown(streams.growth[:, rows].sum(axis=1, keepdims=True), micro_batches)[0]
