"""The memory of a step as an envelope: where the peak can lie, for any micro-batch at once.

Between two births of gradients the sharded part of memory is constant, so only the largest
activation total matters there. Such a stretch is a *plateau*; a step of thousands of storages has a
few hundred. The peak over plateaus is exact, not a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...profiles.profile import CATEGORIES, StepTrace
from ..growth import grown
from ..parallelism.fsdp import Moment

Array = np.ndarray

ALLOCATION_GRAIN_BYTES = 512
"""The CUDA caching allocator hands out multiples of this (c10/cuda/CUDACachingAllocator)."""


@dataclass(frozen=True, eq=False)
class Envelope:
    """Live bytes by plateau (P rows) and micro-batch (B columns).

    Compared by identity, so that it is a key of caches.
    """

    micro_batches: Array
    persistent_bytes: dict[str, float]
    """Bytes that live through the whole step, by category (parameters, optimizer, buffers)."""
    activation_bytes: Array
    """[P, B] activations alive at the plateau's highest point."""
    temporary_bytes: Array
    """[P, B] temporaries alive at the same moment."""
    input_bytes: Array
    """[P, B] the batch itself."""
    gradient_bytes: Array
    """[P] unsharded gradients that are alive."""
    block_gradient_bytes: Array
    """[P] those of the block whose backward pass runs."""
    weight_copy_bytes: Array
    """[P] 16-bit copies of weights that autocast keeps, alive at the highest point."""
    moments: tuple[Moment, ...]
    """[P] where in the step each plateau lies."""
    blocks_held: dict[str, Array]
    """[P] blocks of each group whose forward pass has begun and whose backward has not ended."""

    @cached_property
    def is_optimizing(self) -> Array:
        """[P] whether the optimizer runs."""
        return np.array([moment.phase == "optimizer" for moment in self.moments], dtype=bool)

    @cached_property
    def full_gradient_bytes(self) -> float:
        """All gradients, unsharded."""
        return self.gradient_bytes.max(initial=0.0)

    @cached_property
    def root_gradient_bytes(self) -> Array:
        """[P] bytes of the root's gradients that are made before the blocks' backward ends.

        The head's, where it is not tied: what the pass makes before it enters the first block.
        """
        before = [
            size
            for size, moment in zip(self.gradient_bytes, self.moments, strict=True)
            if moment.phase == "backward" and moment.unit is None and moment.previous is None
        ]
        return np.minimum(self.gradient_bytes, max(before, default=0.0))


def envelope(trace: StepTrace, micro_batches: Array) -> Envelope:
    """Return the plateaus of one traced step at these micro-batch sizes.

    Args:
        trace: one step; its stream must hold every storage's birth and death.
        micro_batches: [B] micro-batch sizes.
    """
    stream = trace.memory
    birth = np.asarray(stream.birth_tick)
    death = np.asarray(stream.death_tick)
    category = np.asarray(stream.category)
    growth = np.array(stream.growth, dtype=np.float64)
    base, grows = growth[0], np.asarray(growth[1:].any(axis=0))

    through = (birth < 0) & (death >= stream.end_tick)
    category = with_kept(trace, death, category, grows)
    persistent = {
        name: rounded(base[through & (category == i)]) for i, name in enumerate(CATEGORIES)
    }
    moving = ~through
    ticks = stream.end_tick + 1
    sizes = _rounded_sizes(growth[:, moving], micro_batches)
    running = _running_totals(
        birth[moving], death[moving], category[moving], ~grows[moving], sizes, ticks
    )
    starts = _plateau_starts(trace, running["gradients"][:, 0], ticks)
    transient = (
        running["activations"] + running["temporary"] + running["inputs"] + running["weight_copies"]
    )
    highest = highest_tick(transient, starts, np.append(starts[1:], len(transient)))
    columns = np.arange(len(micro_batches))
    instance = np.searchsorted(np.asarray(trace.start_tick), starts, side="right") - 1
    instance = np.maximum(instance, 0)
    named = moments_of(trace)
    where = [named[i] for i in instance]
    closing = _closing(trace, ticks) if not any(one.final for one in where) else None
    if closing is not None:
        tick, moment = closing  # In no segment: -1 stands for that.
        place = int(np.searchsorted(starts, tick, side="right"))
        starts, instance = np.insert(starts, place, tick), np.insert(instance, place, -1)
        highest = np.insert(highest, place, tick, axis=0)
        where.insert(place, moment)
    gradients = running["gradients"][:, 0]
    return Envelope(
        micro_batches=micro_batches,
        persistent_bytes=persistent,
        activation_bytes=running["activations"][highest, columns],
        temporary_bytes=running["temporary"][highest, columns],
        input_bytes=running["inputs"][highest, columns],
        gradient_bytes=gradients[starts],
        block_gradient_bytes=_block_gradients(trace, gradients, starts, instance),
        weight_copy_bytes=running["weight_copies"][highest, columns].max(axis=1),
        moments=tuple(where),
        blocks_held=_blocks_held(trace, instance),
    )


def _closing(trace: StepTrace, ticks: int) -> tuple[int, Moment] | None:
    """Return the last tick of the backward pass and its moment: the root's gradients are reduced.

    For a step that computes nothing of the root behind its last block, as one without an embedding,
    or nothing but the root: FSDP reduces the root's gradients there all the same. None without a
    backward pass.
    """
    passes = [trace.segments[number].phase for number in trace.schedule]
    behind = [i for i, phase in enumerate(passes) if phase in ("backward", "recompute")]
    if not behind:
        return None
    last = behind[-1] + 1
    tick = (trace.start_tick[last] if last < len(passes) else ticks) - 1
    unit = next((trace.segments[trace.schedule[i]].block for i in reversed(behind)), None)
    return tick, Moment(phase="backward", unit=None, previous=unit, following=None, final=True)


def moments_of(trace: StepTrace) -> list[Moment]:
    """Return the moment of every instance of the schedule: its pass, block and neighbours.

    A block's recompute and its backward are one stay of the block: they are not each other's
    neighbours.
    """
    segments = [trace.segments[i] for i in trace.schedule]
    passes = ["forward" if s.phase == "forward" else s.phase for s in segments]
    passes = ["backward" if p == "recompute" else p for p in passes]
    stays: list[tuple[str, str | None]] = []
    stay_of: list[int] = []
    for i, (phase, segment) in enumerate(zip(passes, segments, strict=True)):
        continues = i > 0 and segments[i - 1].phase == "recompute" and segment.block is not None
        if not continues:
            stays.append((phase, segment.block))
        stay_of.append(len(stays) - 1)
    before = _last_blocks(stays)
    after = _last_blocks(stays[::-1])[::-1]
    of_stays = [
        Moment(
            phase=phase,
            unit=block,
            previous=earlier,
            following=later,
            final=phase == "backward" and block is None and earlier is not None and later is None,
        )
        for (phase, block), earlier, later in zip(stays, before, after, strict=True)
    ]
    return [of_stays[i] for i in stay_of]


def _last_blocks(stays: Sequence[tuple[str, str | None]]) -> list[str | None]:
    """Return for every stay the block of the last one before it in the same pass."""
    last: dict[str, str] = {}
    found = []
    for phase, block in stays:
        found.append(last.get(phase))
        if block is not None:
            last[phase] = block
    return found


def with_kept(trace: StepTrace, death: Array, category: Array, grows: Array) -> Array:
    """Return the categories, with what of the batch outlives backward among the activations.

    Logits that a loop's variable holds are no temporaries of the optimizer, which ranks divide.
    """
    stepping = [
        tick
        for tick, index in zip(trace.start_tick, trace.schedule, strict=True)
        if trace.segments[index].phase == "optimizer"
    ]
    if not stepping:
        return category
    temporary, activations = CATEGORIES.index("temporary"), CATEGORIES.index("activations")
    kept = (category == temporary) & grows & (death > min(stepping))
    return np.where(kept, activations, category)


def _block_gradients(
    trace: StepTrace, gradient_bytes: Array, starts: Array, instance: Array
) -> Array:
    """Return [P] gradients made since the backward pass of the plateau's block began."""
    segments = [trace.segments[i] for i in trace.schedule]
    in_block = np.array([s.phase == "backward" and s.block is not None for s in segments])
    before = np.maximum(np.asarray(trace.start_tick)[instance] - 1, 0)
    runs = in_block[instance] & (instance >= 0)
    return np.where(runs, gradient_bytes[starts] - gradient_bytes[before], 0.0)


def _blocks_held(trace: StepTrace, instance: Array) -> dict[str, Array]:
    segments = [trace.segments[i] for i in trace.schedule]
    held = {}
    for name in {segment.block for segment in segments} - {None}:
        begun = [s.phase == "forward" and s.block == name for s in segments]
        ended = [s.phase == "backward" and s.block == name for s in segments]
        # A block that ends here holds its parameters to the end.
        held[name] = np.append(np.cumsum(begun) - np.cumsum(ended) + ended, 0)[instance]
    return held


def rounded(sizes: Array) -> float:
    """Return the sum of sizes as the allocator rounds them."""
    grain = ALLOCATION_GRAIN_BYTES
    return float((np.ceil(sizes / grain) * grain).sum())


def _rounded_sizes(growth: Array, micro_batches: Array) -> Array:
    """Return [storages, B] sizes as the allocator rounds them."""
    return np.ceil(grown(growth, micro_batches) / ALLOCATION_GRAIN_BYTES) * ALLOCATION_GRAIN_BYTES


def _running_totals(
    birth: Array, death: Array, category: Array, constant: Array, sizes: Array, ticks: int
) -> dict[str, Array]:
    """Return live bytes [ticks, B] by group, as `allocator.events` orders them."""
    names = {name: i for i, name in enumerate(CATEGORIES)}
    activation = category == names["activations"]
    groups = {
        "gradients": category == names["gradients"],
        "weight_copies": activation & constant,
        "activations": activation & ~constant,
        "inputs": (category == names["inputs"]) | (category == names["buffers"]),
        "temporary": (category == names["temporary"])
        | (category == names["optimizer"])
        | (category == names["parameters"]),
    }
    totals: dict[str, Array] = {}
    for name, rows in groups.items():
        change = np.zeros((ticks + 2, sizes.shape[1]))
        np.add.at(change, np.clip(birth[rows], 0, ticks), sizes[rows])
        # At one tick deaths come before births; what is born and dies there is seen once.
        gone = np.maximum(death[rows], birth[rows] + 1)
        np.add.at(change, np.clip(gone, 0, ticks + 1), -sizes[rows])
        totals[name] = np.cumsum(change[:ticks], axis=0)
    return totals


def _plateau_starts(trace: StepTrace, gradient_bytes: Array, ticks: int) -> Array:
    """Return the ticks at which a plateau starts: instances, and every change of the gradients."""
    changes = np.flatnonzero(np.diff(gradient_bytes)) + 1
    # np.unique would import numpy.ma for this alone.
    starts = {0, *trace.start_tick, *changes.tolist()}
    return np.array(sorted(tick for tick in starts if 0 <= tick < ticks), dtype=int)


def highest_tick(transient: Array, starts: Array, ends: Array) -> Array:
    """Return [P, B]: the tick of each plateau's largest transient total, of equal ones the first.

    Args:
        transient: [ticks, B].
        starts: [P] of plateaus that are not empty and do not overlap, in order.
        ends: [P] the ticks behind them.
    """
    lengths = ends - starts
    begins = np.cumsum(lengths) - lengths
    ticks = np.repeat(starts - begins, lengths) + np.arange(int(lengths.sum()))
    inside = transient[ticks]
    is_largest = inside == np.repeat(np.maximum.reduceat(inside, begins), lengths, axis=0)
    return np.minimum.reduceat(np.where(is_largest, ticks[:, None], len(transient)), begins)
