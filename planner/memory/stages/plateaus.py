"""The plateaus of one pipeline stage: what is live on the windows of its own layers.

All sizes are whole numbers of bytes below 2^53, so that no order of adding them changes a sum. Most
storages grow by the same bytes with every sample of a micro-batch, after rounding too: where all of
them do, two columns are added up instead of one for each size of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...growth import grown
from ..plateaus import ALLOCATION_GRAIN_BYTES, Envelope
from .cuts import Cut, Plateaus, cut_of
from .stream import GROUPS, Streams

Array = np.ndarray

GRADIENTS, WEIGHT_COPIES, ACTIVATIONS, INPUTS, TEMPORARY = range(len(GROUPS))


@dataclass(frozen=True, kw_only=True, eq=False)
class StageShape:
    """The plateaus of a stage, and what each further micro-batch in flight adds."""

    envelope: Envelope
    moment: Array
    """[P] which of the moments of the storages each plateau is."""
    saved_bytes: Array
    """[B] activations that one micro-batch keeps between its two passes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sizes:
    """Bytes of storages as the allocator rounds them, at every micro-batch [B]."""

    micro_batches: Array
    columns: Array
    """[C, storages] a constant part and one per sample; else one column for each micro-batch."""
    is_linear: bool
    """Whether the columns are these two."""

    def values(self, totals: Array) -> Array:
        """Return [n, B] bytes of totals [C, n] of the columns."""
        if not self.is_linear:
            return totals.T
        return totals[0][:, None] + totals[1][:, None] * self.micro_batches

    def picked(self, totals: Array, ticks: Array) -> Array:
        """Return [P, B] bytes of totals [C, n] at a tick of its own for each, [P, B]."""
        if not self.is_linear:
            return totals[np.arange(len(totals)), ticks]
        return totals[0][ticks] + totals[1][ticks] * self.micro_batches


def sizes_of(streams: Streams, micro_batches: Array) -> Sizes:
    """Return the sizes of all storages at these micro-batches [B]."""
    exact = grown(streams.growth, micro_batches)
    rounded = np.ceil(exact / ALLOCATION_GRAIN_BYTES) * ALLOCATION_GRAIN_BYTES
    slope = streams.growth[1]
    constant = rounded[:, 0] - slope * micro_batches[0]
    linear = Sizes(micro_batches=micro_batches, columns=np.stack([constant, slope]), is_linear=True)
    if len(micro_batches) > 2 and np.array_equal(linear.values(linear.columns), rounded):
        return linear
    columns = np.ascontiguousarray(rounded.T)
    return Sizes(micro_batches=micro_batches, columns=columns, is_linear=False)


def stage_shape(
    streams: Streams, own: Array, sizes: Sizes, windows: Sequence[int] | None = None
) -> StageShape:
    """Return the plateaus of the stage that runs these instances.

    Args:
        streams: of a rank's share.
        own: [I] whether the stage runs an instance; the optimizer is every stage's.
        sizes: of the storages (`sizes_of`).
        windows: the instances whose plateaus are wanted, some may be twice; None for all.
    """
    cut = cut_of(streams.storages, own)
    totals = cut.running(sizes.columns)
    gradients = sizes.values(totals[GRADIENTS])[:, 0]
    changes = np.flatnonzero(np.diff(gradients)) + 1
    plateaus = cut.plateaus(changes, None if windows is None else np.asarray(windows))
    envelope = _envelope(streams, cut, plateaus, sizes, totals, gradients)
    saved = streams.growth[:, cut.saved].sum(axis=1, keepdims=True)
    return StageShape(
        envelope=envelope,
        moment=plateaus.moment,
        saved_bytes=grown(saved, sizes.micro_batches)[0],
    )


def _envelope(
    streams: Streams, cut: Cut, plateaus: Plateaus, sizes: Sizes, totals: Array, gradients: Array
) -> Envelope:
    """Return what is live at the highest tick of every plateau.

    Args:
        streams: of a rank's share.
        cut: of the stage.
        plateaus: of the cut.
        sizes: of the storages.
        totals: [groups, C, ticks] of their columns.
        gradients: [ticks] bytes.
    """
    transient = totals[WEIGHT_COPIES] + totals[ACTIVATIONS] + totals[INPUTS] + totals[TEMPORARY]
    highest = plateaus.highest(sizes.values(transient[:, plateaus.ticks]), cut.ticks)
    own = gradients[plateaus.starts]
    return Envelope(
        micro_batches=sizes.micro_batches,
        persistent_bytes=streams.persistent_bytes,
        activation_bytes=sizes.picked(totals[ACTIVATIONS], highest),
        temporary_bytes=sizes.picked(totals[TEMPORARY], highest),
        input_bytes=sizes.picked(totals[INPUTS], highest),
        gradient_bytes=own,
        block_gradient_bytes=np.where(plateaus.in_backward, own - gradients[plateaus.before], 0.0),
        weight_copy_bytes=sizes.picked(totals[WEIGHT_COPIES], highest).max(axis=1),
        moments=plateaus.moments,
        blocks_held=plateaus.blocks_held,
    )
