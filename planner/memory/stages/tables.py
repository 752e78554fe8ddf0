"""The stages of several pipelines under one split, as tables over the plateaus of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....profiles.profile import Profile
from ...parallelism.fsdp import Moment, Unit
from ...parallelism.rank_parameters import RankUnits
from ...software.state_bytes import StateScale
from ..rank_memory import REDUCE_BYTES, units_by_name
from .memory import group_names, profile_keeps_fp32, stage_units
from .plateaus import StageShape

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Stages:
    """Stages [K] of several pipelines under one split and one recompute policy."""

    profile: Profile
    moments_in_order: tuple[Moment, ...]
    """What `StageShape.moment` counts."""
    shapes: Sequence[StageShape]
    units: Sequence[RankUnits]
    in_flight: Array
    """[A, K] micro-batches that a stage holds at most, under each way of accumulating."""
    accumulates: Array
    """[A, K] whether a step has several micro-batches."""
    is_staged: Array
    """[K] whether a stage is one of several."""
    gradient_share: Array
    """[A, K] part of a stage's gradients that is whole at one time (`whole_stages`)."""
    received: Array
    """[A, K, B] bytes of what a stage received, which DeepSpeed's pipeline keeps."""

    @cached_property
    def owner(self) -> Array:
        """[N] stage of each plateau: those of all stages lie one after the other."""
        return np.repeat(np.arange(len(self.shapes)), self._counts)

    @cached_property
    def _counts(self) -> Array:
        return np.array([len(shape.envelope.moments) for shape in self.shapes])

    def _table(self, name: str) -> Array:
        return np.concatenate([getattr(shape.envelope, name) for shape in self.shapes])

    @cached_property
    def moments(self) -> dict[Moment, Array]:
        """Plateaus of every moment."""
        index = np.concatenate([shape.moment for shape in self.shapes])
        found = {one: np.flatnonzero(index == i) for i, one in enumerate(self.moments_in_order)}
        return {one: places for one, places in found.items() if len(places)}

    @cached_property
    def temporary(self) -> Array:
        """[B, N] bytes that live for a moment."""
        return np.ascontiguousarray(self._table("temporary_bytes").T)

    @cached_property
    def activations(self) -> Array:
        """[A, B, N] with those of the other micro-batches in flight, but in the optimizer."""
        persistent = self.shapes[0].envelope.persistent_bytes
        own = self._table("activation_bytes") + self._table("input_bytes")
        own = own + persistent["buffers"] + persistent["inputs"]
        saved = np.stack([shape.saved_bytes for shape in self.shapes], axis=1)
        others = np.maximum(self.in_flight - 1, 0.0)
        held = (others[:, None, :] * saved[None])[:, :, self.owner]
        held = np.where(self.optimizing, 0.0, held)
        return np.ascontiguousarray(own.T)[None] + held

    @cached_property
    def beside(self) -> Array:
        """[A, B, N] both, outside the optimizer's step."""
        return np.where(self.optimizing, -np.inf, self.activations + self.temporary)

    @cached_property
    def steps(self) -> Array:
        """[S] the plateaus at which an optimizer runs."""
        return np.flatnonzero(self.optimizing)

    def stepping_bytes(self, stepped: Array) -> Array:
        """Return [A, Z, B, S] both during the optimizer's step, whose temporaries are scaled.

        Args:
            stepped: [Z, K] what scales them.
        """
        scale = stepped[:, None, self.owner[self.steps]]
        temporary = self.temporary[None, :, self.steps] * scale
        return self.activations[:, None, :, self.steps] + temporary[None]

    @cached_property
    def weight_copies(self) -> Array:
        """[N] bytes of autocast's copies."""
        return self._table("weight_copy_bytes")

    @cached_property
    def optimizing(self) -> Array:
        """[N] whether the optimizer runs."""
        return self._at(lambda moment: moment.phase == "optimizer")

    def _at(self, holds: Callable[[Moment], bool]) -> Array:
        found = np.zeros(len(self.owner), dtype=bool)
        for moment, places in self.moments.items():
            found[places] = holds(moment)
        return found

    def highest(self, values: Array) -> Array:
        """Return [..., K] the largest of each stage's values [..., N]."""
        begins = np.cumsum(self._counts) - self._counts
        return np.maximum.reduceat(values, begins, axis=-1)

    @cached_property
    def reduced_late(self) -> Array:
        """[N] whether the root's sharded gradients are there too (`Moment.has_reduced`)."""
        return self._at(lambda moment: moment.has_reduced)

    @cached_property
    def forward(self) -> Array:
        """[N] whether a forward pass runs."""
        return self._at(lambda moment: moment.phase == "forward")

    @cached_property
    def backward(self) -> Array:
        """[N] whether a backward pass runs."""
        return self._at(lambda moment: moment.phase == "backward")

    @cached_property
    def final(self) -> Array:
        """[N] whether only the root's gradients are left."""
        return self._at(lambda moment: moment.final)

    @cached_property
    def opens_backward(self) -> Array:
        """[N] whether the backward pass has not entered a block yet."""
        return self._at(
            lambda one: one.phase == "backward" and one.unit is None and one.previous is None
        )

    @cached_property
    def parameters(self) -> Array:
        """[4, K] dense and experts' parameters, dense and experts' trainable ones."""
        return np.array(
            [
                [
                    sum(unit.count * getattr(unit, name) for unit in getattr(one, part))
                    for one in self.units
                ]
                for name in ("parameters", "trainable")
                for part in ("dense", "experts")
            ],
            dtype=float,
        )

    @cached_property
    def gradients(self) -> tuple[Array, Array, Array, Array]:
        """[N] bytes of all, of the running block's and of the root's; [K] of all together.

        The trace's are those of whole layers: they are scaled to the parameters of the rank.
        """
        full = np.array([shape.envelope.full_gradient_bytes for shape in self.shapes])
        traced = self.shapes[0].envelope.persistent_bytes["parameters"]
        width = 4 if profile_keeps_fp32(traced, self.profile.parameters) else 2
        trainable = self.parameters[2] + self.parameters[3]
        scale = np.where(full > 0, trainable * width / np.maximum(full, 1), 1.0)
        every, block = self._table("gradient_bytes"), self._table("block_gradient_bytes")
        before = self.highest(np.where(self.opens_backward, every, 0.0))
        root = np.minimum(every, before[self.owner])
        by = scale[self.owner]
        return by * every, by * block, by * root, scale * full

    @cached_property
    def fsdp_units(self) -> list[tuple[Unit, ...]]:
        """The units of each stage, the root last."""
        names = group_names(self.profile)
        return [stage_units(one, names) for one in self.units]

    @cached_property
    def trainable(self) -> Array:
        """[K] trainable parameters of the units."""
        counts = [sum(unit.count * unit.trainable for unit in units) for units in self.fsdp_units]
        return np.array(counts, dtype=float)

    @cached_property
    def per_gradient(self) -> Array:
        """[K] bytes of a gradient as the trace has it."""
        return self.gradients[3] / np.maximum(1, self.trainable)

    def reduced_width(self, state: StateScale) -> Array:
        """Return [K] bytes of a gradient as it is reduced."""
        kept = state.gradients * self.per_gradient
        return np.where((kept > 0) & (kept < 3), 2, REDUCE_BYTES)

    @cached_property
    def named(self) -> list[dict[str | None, Unit]]:
        """The units of each stage by block group."""
        return [units_by_name(units) for units in self.fsdp_units]

    def held_blocks(self) -> dict[str, Array]:
        """Return [N] blocks of each group that keep what they gathered."""
        pairs = list(zip(self.shapes, self._counts.tolist(), strict=True))
        return {
            name: np.concatenate(
                [shape.envelope.blocks_held.get(name, np.zeros(count)) for shape, count in pairs]
            )
            for name in group_names(self.profile)
        }
