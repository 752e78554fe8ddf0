"""What became of data-parallel layouts on one kind of machine: the best variants, and counts.

It is all of `TriedLayouts` that candidates are made of, and small enough to be kept from search to
search. No price changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from ....catalog.vocabulary import Recompute
from ...hardware.cluster import Site
from ...plan.layout import Layout
from ...plan.setup import Setup
from ...predict.kept.model_cache import ModelCache
from ...software.stack import casts_layers
from ..found import Found
from ..step_doubt import mean_over_likely
from .best_variant import Best
from .tried_layouts import TriedLayouts


class BestVariant(NamedTuple):
    """The best variant of a layout."""

    row: int
    """Of the layout among those that were tried."""
    micro_batch: int
    grad_accum: int
    recompute: Recompute
    recompute_share: float
    step_s: float
    over_likely: float
    """Mean of the step time over `step_s`, its likely value."""
    is_risky: bool
    """Whether it may run out of memory with a larger chance than is accepted."""
    fitting: int
    """How many variants that fit it stands for."""

    def found(self, layouts: Sequence[Layout], base: Setup) -> Found:
        """Return the variant with its layout among those that were tried, and what else is set."""
        return Found(
            base=base,
            layout=layouts[self.row],
            micro_batch=self.micro_batch,
            grad_accum=self.grad_accum,
            recompute=self.recompute,
            recompute_share=self.recompute_share,
            step_s=self.step_s,
            over_likely=self.over_likely,
        )


class DataParallelOutcome(NamedTuple):
    """What became of data-parallel layouts with every variant on one kind of machine."""

    best: tuple[BestVariant, ...]
    tried: int
    indivisible: int
    out_of_memory: int

    @classmethod
    def of(
        cls,
        tried: TriedLayouts,
        cache: ModelCache,
        one_node: Site,
        layouts: tuple[Layout, ...],
        base: Setup,
        *,
        all_variants: bool,
    ) -> DataParallelOutcome:
        """Return what became of layouts that were tried.

        Args:
            tried: the layouts with every variant.
            cache: the model.
            one_node: of the machine.
            layouts: the same, [L].
            base: what runs on one rank.
            all_variants: whether every layout is shown that fits.
        """
        best = tried.best
        shown = _fitting_shown(layouts, best, base, all_variants=all_variants)

        def over_likely(one: BestVariant) -> float:
            setup = replace(
                base,
                layout=layouts[one.row],
                micro_batch=one.micro_batch,
                grad_accum=one.grad_accum,
                recompute=one.recompute,
                recompute_share=one.recompute_share,
            )
            site = replace(one_node, nodes=setup.layout.accelerators // one_node.per_node)
            parts = tried.parts_at(one.row, int(best.column[one.row]))
            return mean_over_likely(cache, site, setup, parts)

        made = [_best_of(tried, best, row, fitting) for row, fitting in shown.items()]
        return cls(
            best=tuple(one._replace(over_likely=over_likely(one)) for one in made),
            tried=tried.tried,
            indivisible=tried.indivisible,
            out_of_memory=tried.out_of_memory,
        )

    @classmethod
    def kept(
        cls,
        known: Callable[[Callable[[], object]], object],
        make: Callable[[], DataParallelOutcome],
    ) -> DataParallelOutcome:
        """Return an outcome that may be known, as JSON holds it: with lists for tuples.

        Args:
            known: returns what is known, else what it is handed makes.
            make: computes it.
        """
        best, *counts = cast(Any, known(make))
        return cls(tuple(map(BestVariant._make, best)), *counts)


def _best_of(tried: TriedLayouts, best: Best, row: int, fitting: int) -> BestVariant:
    column = int(best.column[row])
    return BestVariant(
        row=row,
        micro_batch=int(tried.micro_batch[column]),
        grad_accum=int(tried.accum[row, column]),
        recompute=tried.recompute[column],
        recompute_share=float(tried.share[row, column]),
        step_s=float(tried.step_s[row, column]),
        over_likely=1.0,
        is_risky=not best.is_safe[row],
        fitting=fitting,
    )


def _fitting_shown(
    layouts: tuple[Layout, ...], best: Best, base: Setup, *, all_variants: bool
) -> dict[int, int]:
    """Return rows of layouts to show, with how many variants that fit each stands for.

    The same nodes cost the same, so a slower layout of them is neither cheaper nor faster: only
    the fastest is shown of those that hold whole parameters and of those that shard them,
    unless all variants are asked for. (Those whose blocks are compiled one by one are looked at
    apart where the loss is the model's own.)
    """
    fitting = best.fitting
    rows = [row for row in range(len(layouts)) if fitting[row]]
    if all_variants:
        return {row: int(fitting[row]) for row in rows}
    groups: dict[tuple[int, bool], list[int]] = {}
    for row in rows:
        layout = layouts[row]
        key = (layout.accelerators, casts_layers(base.stack, layout, base.offload))
        groups.setdefault(key, []).append(row)
    return {
        max(group, key=lambda row: (best.is_safe[row], best.rate[row])): int(fitting[group].sum())
        for group in groups.values()
    }
