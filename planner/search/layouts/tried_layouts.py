"""All that is tried of data-parallel layouts on one kind of machine: what fits, and how fast it is.

Columns are recompute policies with micro-batches, and behind them recompute of only some of the
layers with each micro-batch that needs it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....catalog.vocabulary import Recompute
from ...hardware.cluster import Site
from ...plan.layout import Layout
from ...plan.setup import Setup
from ...predict.input_wait import input_s
from ...step.data_parallel_step import StepTimes
from .best_variant import Best
from .data_parallel import DataParallelPredictor, SomeLayers, data_ranks

FULL: tuple[Recompute, ...] = ("full",)


@dataclass(frozen=True, kw_only=True, eq=False)
class TriedLayouts:
    """Layouts [L] with every variant [V] on one kind of machine."""

    micro_batch: np.ndarray
    """[V]"""
    recompute: tuple[Recompute, ...]
    """[V]"""
    share: np.ndarray
    """[L, V] part of the layers that are recomputed, where any are."""
    accum: np.ndarray
    """[L, V]"""
    global_batch: np.ndarray
    """[L, V]"""
    step_s: np.ndarray
    """[L, V]"""
    parts: tuple[StepTimes, ...]
    """The steps side by side, [L, V] in all, before any wait for their input; empty where nothing
    fits."""
    fits: np.ndarray
    """[L, V]"""
    is_safe: np.ndarray
    """[L, V] whether it fits but for the risk that is accepted."""
    indivisible: int
    """How many do not make the global batch."""
    out_of_memory: int
    """How many make the global batch and do not fit."""

    @property
    def tried(self) -> int:
        """How many there are; recompute of some layers is tried only where it fits."""
        return int(self.fits.sum()) + self.indivisible + self.out_of_memory

    @property
    def best(self) -> Best:
        """The best variant of every layout."""
        rate = self.global_batch / self.step_s
        return Best.of(rate, self.fits, self.is_safe, self.micro_batch)

    def parts_at(self, row: int, column: int) -> StepTimes:
        """Return one step, [1, 1]."""
        for parts in self.parts:
            width = np.shape(parts.total_s)[1]
            if column < width:
                return parts.at(row, column)
            column -= width
        raise IndexError("no such column")


def tried_layouts(
    predictor: DataParallelPredictor,
    site: Site,
    layouts: tuple[Layout, ...],
    base: Setup,
    *,
    max_oom: float,
) -> TriedLayouts:
    """Return the layouts with every variant; where none fits, no kernel is timed.

    Args:
        predictor: of the model and what is searched.
        site: one node of the machine.
        layouts: that split only the data, [L], each on as many such nodes as it needs.
        base: what runs on one rank, but for its batch and its recompute.
        max_oom: chance of running out of memory that is accepted.
    """
    accum, divides = predictor.accumulation(layouts, predictor.micro_batch)
    fits, is_safe = predictor.fits(site, layouts, base, accum, max_oom=max_oom)
    some, parts, step_s = None, (), np.full(accum.shape, np.inf)
    if fits.any():  # Recompute of some layers fits only where that of all does.
        variants = predictor.variants(site.accelerator, base)
        parts = (predictor.parts(site, layouts, variants, accum),)
        step_s = parts[0].total_s
        # No step with recompute is faster than one without: it need not be timed where even that
        # would not beat what fits.
        rate = predictor.micro_batch * accum / step_s
        held = np.where(fits & divides & is_safe, rate, 0.0).max(axis=1, keepdims=True)
        wanted = divides & (rate > held)
        some = predictor.some_layers(site, layouts, variants, accum, wanted, max_oom=max_oom)
    columns = _Columns(
        predictor.micro_batch,
        predictor.recompute,
        np.full(accum.shape, base.recompute_share),
        accum,
        step_s,
        fits & divides,
        fits & divides & is_safe,
    )
    if some is not None:
        parts = (*parts, some.parts)
        columns = columns.beside(some, predictor.space.micro_batches, divides)
    batch = columns.micro_batch * data_ranks(layouts) * columns.accum
    nodes = np.array([[layout.accelerators / site.per_node] for layout in layouts])
    input_needed_s = input_s(predictor.cache.profile, site, batch / nodes)
    step_s = columns.step_s
    return TriedLayouts(
        micro_batch=columns.micro_batch,
        recompute=columns.recompute,
        share=columns.share,
        accum=columns.accum,
        global_batch=batch,
        step_s=step_s if input_needed_s is None else np.maximum(step_s, input_needed_s),
        parts=parts,
        fits=columns.fits,
        is_safe=columns.is_safe,
        indivisible=int((~divides).sum()),
        out_of_memory=int((divides & ~fits).sum()),
    )


@dataclass(frozen=True)
class _Columns:
    micro_batch: np.ndarray
    recompute: tuple[Recompute, ...]
    share: np.ndarray
    accum: np.ndarray
    step_s: np.ndarray
    fits: np.ndarray
    is_safe: np.ndarray

    def beside(self, some: SomeLayers, sizes: np.ndarray, divides: np.ndarray) -> _Columns:
        """Return these columns with those of recompute of some layers behind them."""
        own = ~np.isnan(some.share) & divides[:, : len(sizes)]

        def joined(one: np.ndarray, other: np.ndarray) -> np.ndarray:
            return np.concatenate([one, other], axis=-1)

        return _Columns(
            micro_batch=joined(self.micro_batch, sizes),
            recompute=self.recompute + FULL * len(sizes),
            share=joined(self.share, np.where(own, some.share, 1.0)),
            accum=joined(self.accum, some.accum),
            step_s=joined(self.step_s, some.parts.total_s),
            fits=joined(self.fits, own),
            is_safe=joined(self.is_safe, own),
        )
