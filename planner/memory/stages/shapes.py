"""The plateaus of pipeline stages of any length, from those of a few short ones.

In a run of equal layers what is live at the same point of each layer grows or falls by the same
bytes from layer to layer, so that the highest of them is at an end of the run: only the first two
and the last two layers of a run are looked at (the very first and last may have other neighbours).
The same holds for the equal chunks of an interleaved stage. What is live there is linear in the
layers of a chunk and in the number of chunks: four short stages give any longer one, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np

from ....profiles.profile import StepTrace
from ...parallelism.pipeline_chunks import chunk_sizes
from ...parallelism.pipeline_stages import stage_of_instances
from ...plan.layout import Layout
from .plateaus import Sizes, StageShape, sizes_of, stage_shape
from .stream import Streams

Array = np.ndarray

SHORT_CHUNK = 4
"""Layers of the shorter of two chunks that longer ones follow from."""
FEW_CHUNKS = 2
OUTER = 4
"""Of equal layers or chunks in a row, how many are looked at: two at each end."""
LEAST_LAYERS = 20
"""Layers of a model in which the short stages have room."""
_ARRAYS = (
    "activation_bytes",
    "temporary_bytes",
    "input_bytes",
    "gradient_bytes",
    "block_gradient_bytes",
    "weight_copy_bytes",
)

Chunk = tuple[int, int]
"""First layer, and how many."""


@dataclass(frozen=True, eq=False)
class StageShapes:
    """The stages of one split under one recompute policy; equal ones are made once."""

    streams: Streams
    """Of a rank's share, were all layers on it."""
    blocks: Array
    """[I] layer whose forward or backward pass an instance is; before all of them -1, behind all
    of them the number of layers, -2 for the optimizer."""
    layers: int
    sizes: Sizes
    _made: dict[tuple[object, ...], StageShape]

    @cached_property
    def signatures(self) -> list[tuple[object, ...]]:
        """What layers that are equal have in common: their segments, and what these store."""
        storages, found = self.streams.storages, []
        width = len(self.blocks)
        at = np.maximum(storages.instance, 0)
        sums = np.array(
            [
                np.bincount(at, weights=values * (storages.instance >= 0), minlength=width)
                for values in (np.ones(len(at)), *self.streams.growth)
            ]
        )
        for own in self.instances:
            found.append((*storages.segments[own].tolist(), *sums[:, own].ravel().tolist()))
        return found

    @cached_property
    def instances(self) -> list[Array]:
        """The instances of each layer."""
        return [np.flatnonzero(self.blocks == layer) for layer in range(self.layers)]

    @cached_property
    def is_uniform(self) -> bool:
        """Whether all layers are equal, but perhaps the first and the last."""
        return self.layers >= LEAST_LAYERS and len(set(self.signatures[1:-1])) == 1

    def of(self, pipeline: int, virtual_stages: int, stage: int) -> StageShape:
        """Return the plateaus of a stage that can be its peak."""
        sizes = chunk_sizes(self.layers, pipeline * virtual_stages)
        begins = np.cumsum([0, *sizes]).tolist()
        chunks = [(begins[c], sizes[c]) for c in range(stage, len(sizes), pipeline)]
        ends = stage == 0, stage == pipeline - 1
        lengths = {size for _, size in chunks}
        if self.is_uniform and pipeline > 1 and len(lengths) == 1 and min(lengths) > 0:
            return self._linear(len(chunks), chunks[0][1], ends)
        return self._direct(chunks, ends)

    def _linear(self, count: int, size: int, ends: tuple[bool, bool]) -> StageShape:
        """Return the stage of so many chunks of so many layers."""

        def of_size(chunks: int, layers: int) -> StageShape:
            return self._short(chunks, layers, ends)

        def of_count(layers: int) -> StageShape:
            if count <= FEW_CHUNKS + 1:
                return of_size(count, layers)
            return _extended(lambda n: of_size(n, layers), FEW_CHUNKS, count)

        if size <= SHORT_CHUNK + 1:
            return of_count(size)
        return _extended(of_count, SHORT_CHUNK, size)

    def _short(self, count: int, size: int, ends: tuple[bool, bool]) -> StageShape:
        """Return a short stage, with a layer of other stages between its chunks."""
        begins = [chunk * (size + 1) for chunk in range(count)]
        first = 0 if ends[0] else 1
        if ends[1] and not ends[0]:
            first = self.layers - (begins[-1] + size)
        return self._direct([(first + begin, size) for begin in begins], ends)

    def _direct(self, chunks: list[Chunk], ends: tuple[bool, bool]) -> StageShape:
        key = (tuple(chunks), ends)
        if key not in self._made:
            own = np.zeros(len(self.blocks), dtype=bool)
            for begin, size in chunks:
                for instances in self.instances[begin : begin + size]:
                    own[instances] = True
            own |= (self.blocks == -1) & ends[0] | (self.blocks == self.layers) & ends[1]
            self._made[key] = stage_shape(
                self.streams, own, self.sizes, self._windows(chunks, own, ends)
            )
        return self._made[key]

    def _windows(self, chunks: list[Chunk], own: Array, ends: tuple[bool, bool]) -> list[int]:
        """Return the instances in which the peak can lie, the same number for like stages."""
        layers: list[int] = []
        for begin, size in self._outer(chunks, ends):
            at = begin
            for _, run in groupby(self.signatures[begin : begin + size]):
                length = len(list(run))
                picked = (0, min(1, length - 1), max(length - 2, 0), length - 1)
                # A short stage that longer ones follow from has as many, some of them twice.
                layers += [at + i for i in (picked if self.is_uniform else dict.fromkeys(picked))]
                at += length
        within = [self.instances[layer] for layer in layers]
        block = (self.blocks >= 0) & (self.blocks < self.layers)
        steps = self.streams.storages.optimizes
        # The optimizer's come first, so that they are in the same place for all stages.
        around = (np.flatnonzero(steps), np.flatnonzero(own & ~block & ~steps))
        return np.concatenate([*around, *within]).tolist()

    def _outer(self, chunks: list[Chunk], ends: tuple[bool, bool]) -> list[Chunk]:
        """Return the chunks in which the peak can lie: of equal ones in a row the outer ones.

        The first chunk of the first stage and the last of the last are not like the others.
        """
        inner = {size for _, size in chunks[1:-1]}
        if not self.is_uniform or len(inner) > 1:
            return self._outer_of_runs(chunks)
        if len(chunks) < FEW_CHUNKS:
            return chunks
        picked = [0, -1]
        picked += [1] if ends[0] else []
        picked += [-2] if ends[1] else []
        if inner and {size for _, size in chunks} != inner:
            picked = [0, 1, -2, -1]
        return [chunks[i] for i in picked]

    def _outer_of_runs(self, chunks: list[Chunk]) -> list[Chunk]:
        """Return the first two and the last two chunks of every run of equal ones."""
        picked: list[Chunk] = []
        for _, run in groupby(chunks, lambda one: self.signatures[one[0] : one[0] + one[1]]):
            equal = list(run)
            picked += equal if len(equal) <= OUTER else equal[:2] + equal[-2:]
        return picked


def _extended(of: Callable[[int], StageShape], short: int, wanted: int) -> StageShape:
    """Return the stage of a length, from that of a short one and of one that is one longer."""
    first, second = of(short), of(short + 1)
    steps = wanted - short

    def further(one: Array, other: Array) -> Array:
        return one + steps * (other - one)

    a, b = first.envelope, second.envelope
    arrays = {name: further(getattr(a, name), getattr(b, name)) for name in _ARRAYS}
    held = {name: further(a.blocks_held[name], b.blocks_held[name]) for name in a.blocks_held}
    return StageShape(
        envelope=replace(a, blocks_held=held, **arrays),
        moment=first.moment,
        saved_bytes=further(first.saved_bytes, second.saved_bytes),
    )


def stage_shapes(streams: Streams, trace: StepTrace, micro_batches: Array) -> StageShapes:
    """Return what makes the stages of a split step.

    Args:
        streams: of a rank's share of it.
        trace: that share.
        micro_batches: [B] sizes.

    Raises:
        UnsupportedError: the model has no repeated blocks.
    """
    layers = sum(
        trace.segments[i].phase == "forward" and trace.segments[i].block is not None
        for i in trace.schedule
    )
    # Where every layer is a stage, the root's instances are on the first and on the last.
    stages = stage_of_instances(trace, Layout(pipeline=max(1, layers)))
    block = np.array([trace.segments[i].block is not None for i in trace.schedule])
    stages = np.where(~block & (stages == 0), -1, stages)
    stages = np.where(~block & (stages == layers - 1), layers, stages)
    blocks = np.where(streams.storages.optimizes, -2, stages)
    return StageShapes(streams, blocks, layers, sizes_of(streams, micro_batches), {})
