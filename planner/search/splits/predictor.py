"""Layouts that split the model: step times and memory of all of them on one kind of node at once.

Three tables are made, each once for what its entries depend on: memory peaks, which no device
changes; the slowest stage of a micro-batch, which no data degree changes; collectives of the data
dimension. A candidate (layout, recompute policy, micro-batch) is then a place in each of them, and
its step time is arithmetic over arrays of candidates (`predict/split_step.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...hardware.cluster import Site
from ...parallelism.legal_layouts import limits_of
from ...plan.layout import Layout
from ...plan.runnable import why_not_runnable
from ...plan.setup import Setup
from ...predict.kept.model_cache import ModelCache
from ...step.data_parallel_step import StepTimes
from ..found import Found
from ..search_space import Space, few_micro_batches
from ..step_doubt import mean_over_likely
from .candidates import Fitting
from .outcome import Asked, Outcome
from .rows import Kind, SplitRows
from .split_fits import SplitFits
from .steps import SplitSteps
from .tables import SplitTables

FIRST_LOOK = 512
"""Candidates with the smallest lower bounds that are timed before the others are compared."""


@dataclass
class SplitPredictor:
    """Predicts layouts that split one model under one software stack."""

    cache: ModelCache
    space: Space
    rows: SplitRows
    tables: SplitTables
    fits: SplitFits

    @classmethod
    def of(
        cls, cache: ModelCache, space: Space, base: Setup, kinds: Sequence[Kind]
    ) -> SplitPredictor | None:
        """Return the predictor of a model; None where it cannot be split on these nodes.

        Args:
            cache: the model.
            space: what is searched.
            base: precision and software, which say what is traced.
            kinds: of nodes that may be asked for.
        """
        numerics = cache.numerics(base.precision, autocast=base.autocast)
        limits = limits_of(cache.steps.trace_in(numerics, "none"), cache.profile.tokens_per_sample)
        if limits is None:
            return None
        rows = SplitRows(cache, limits, base, space.global_batch)
        rows.add(kinds, space.node_counts)
        if not rows.rows:
            return None
        tables = SplitTables(
            cache=cache,
            rows=rows,
            recomputes=space.recomputes,
            node_counts=space.node_counts,
            micro_batches=np.array(few_micro_batches(space.micro_batches)),
        )
        fits = SplitFits(cache=cache, space=space, rows=rows, tables=tables)
        return cls(cache=cache, space=space, rows=rows, tables=tables, fits=fits)

    def best(
        self,
        site: Site,
        bases: Sequence[Setup],
        asked: Sequence[Asked],
        *,
        max_oom: float = 1.0,
    ) -> list[Outcome]:
        """Return the fastest layouts that fit on so many nodes of a site, for each that is asked.

        All numbers of nodes are predicted together: there are few layouts of each, so that calls of
        array functions would take longer than what they compute.

        Args:
            site: one node of it.
            bases: precision and software; with autocast, without it, or both.
            asked: numbers of nodes, each once, and what their steps have to be shorter than.
            max_oom: chance of running out of memory that is accepted.
        """
        kind, facts = Kind(site.per_node, site.domain), self.rows.facts
        rows = np.concatenate([self.rows.legal[kind, one.nodes] for one in asked])
        ranks = np.array([one.nodes * site.per_node for one in asked])
        place = np.zeros(1 + max(ranks.max(), facts["accelerators"].max()), dtype=int)
        place[ranks] = np.arange(len(asked))
        place = place[facts["accelerators"]]  # Which of those asked a row belongs to.
        parts = [Fitting.none()]
        short, uneven = np.zeros(len(asked), dtype=int), np.zeros(len(asked), dtype=int)
        for i, base in enumerate(bases):
            several = len(bases) > 1
            own = rows[self.fits.runs_under(base, several=several)[rows]]
            if not len(own):
                continue
            stages = self.fits.zero_stages_under(base, several=several)
            fitting, missed, indivisible = self.fits.of(
                site, base, own, i, max_oom, zero_stages=stages
            )
            parts.append(fitting)
            np.add.at(short, place[own], missed)
            np.add.at(uneven, place[own], indivisible)
        these = Fitting(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        belongs = place[these.row]
        found, timed = self._fastest(site, bases, these, rows, belongs, asked)
        fit = np.bincount(belongs, minlength=len(asked))
        return [
            Outcome(
                found=tuple(found[i]),
                fitting=int(fit[i]),
                out_of_memory=int(short[i]),
                indivisible=int(uneven[i]),
                timed=int(timed[i]),
            )
            for i in range(len(asked))
        ]

    def _fastest(
        self,
        site: Site,
        bases: Sequence[Setup],
        these: Fitting,
        rows: np.ndarray,
        belongs: np.ndarray,
        asked: Sequence[Asked],
    ) -> tuple[list[list[Found]], np.ndarray]:
        """Return the fastest candidates of all that is asked, and how many had to be timed.

        No step is shorter than its micro-batches on the slowest stage and the wait for the others:
        everything else in it takes no time or some. What this alone makes slower than a known
        candidate of its kind (run by the runner or not) is not timed.
        """
        timed = np.zeros(len(asked), dtype=int)
        if not len(these.row):
            return [[] for _ in asked], timed
        steps = SplitSteps(self.cache, self.rows, self.tables, site, bases, rows)
        runs = self._runnable(bases[0])[these.row]
        # By what is asked: the shortest known step of those that the runner does not run, and does.
        known_s = np.array([[one.bound_s, one.bound_s] for one in asked])
        known = np.full(known_s.shape, -1)
        least_s = steps.least_s(these)
        left = np.flatnonzero(least_s < known_s[belongs, 0])
        left = left[np.lexsort((least_s[left], belongs[left]))]
        # Those with the smallest bounds of each first: the others need only beat them.
        first = np.arange(len(left)) - np.searchsorted(belongs[left], belongs[left]) < FIRST_LOOK
        for part in (left[first], left[~first]):
            limits = np.stack([known_s.min(axis=1), known_s[:, 1]], axis=1)
            part = part[least_s[part] < limits[belongs[part], runs[part].astype(int)]]
            if not len(part):
                continue
            step_s = steps.step_s(these, part)
            timed += np.bincount(belongs[part], minlength=len(asked))
            own = belongs[part] * 2 + runs[part]
            ordered = np.lexsort((step_s, own))
            for at in ordered[np.flatnonzero(np.diff(own[ordered], prepend=-1))].tolist():
                i, kind = divmod(int(own[at]), 2)
                if step_s[at] < known_s[i, kind]:
                    known_s[i, kind], known[i, kind] = step_s[at], part[at]
        # One that is not run by the runner stands beside one that is only if it is faster.
        known[known_s[:, 0] >= known_s[:, 1], 0] = -1
        return self._found(steps, these, known[:, ::-1], known_s[:, ::-1]), timed

    def _found(
        self, steps: SplitSteps, these: Fitting, places: np.ndarray, step_s: np.ndarray
    ) -> list[list[Found]]:
        """Return the candidates in these places, [asked, 2], whose steps take so many seconds.

        A place below 0 is none.
        """
        wanted = places[places >= 0]
        parts = steps.parts_of(these, wanted)
        found, at = [], 0
        for row, seconds in zip(places.tolist(), step_s.tolist(), strict=True):
            own = []
            for place, one_s in zip(row, seconds, strict=True):
                if place >= 0:
                    own.append(self._one(steps, these, place, one_s, parts[at]))
                    at += 1
            found.append(own)
        return found

    def _one(
        self, steps: SplitSteps, these: Fitting, at: int, seconds: float, parts: StepTimes
    ) -> Found:
        """Return the candidate in one place."""
        base, site = steps.bases[these.base[at]], steps.site
        setup = replace(
            base,
            layout=self.rows.layout(self.rows.rows[these.row[at]]),
            micro_batch=int(self.tables.micro_batches[these.size[at]]),
            grad_accum=int(these.accum[at]),
            recompute=self.space.recomputes[these.recompute[at]],
            recompute_share=float(these.share[at]),
        )
        placed = replace(site, nodes=setup.layout.accelerators // site.per_node)
        return Found(
            layout=setup.layout,
            base=base,
            micro_batch=setup.micro_batch,
            grad_accum=setup.grad_accum,
            recompute=setup.recompute,
            recompute_share=setup.recompute_share,
            step_s=seconds,
            over_likely=mean_over_likely(self.cache, placed, setup, parts),
        )

    def _runnable(self, base: Setup) -> np.ndarray:
        """Return [rows] whether gpuplan's runner runs a layout."""
        profile = self.cache.profile
        blocks = max((group.count for group in profile.blocks), default=0)

        def runs(layout: Layout) -> bool:
            reason = why_not_runnable(
                layout,
                precision=base.precision,
                stack=base.stack,
                grad_accum=layout.pipeline,
                recompute="none",
                offloaded=base.offload,
                tensor_plan=profile.tensor_plan,
                tied_modules=profile.tied_modules,
                tied_blocks=profile.tied_blocks,
                blocks=blocks,
                sparse_parameters=profile.sparse_parameters,
            )
            return reason is None

        def make() -> np.ndarray:
            return np.array([runs(self.rows.layout(row)) for row in self.rows.rows], dtype=bool)

        key = ("runnable", self.rows.key, base.precision, base.offload, len(self.rows.rows))
        return self.cache.shared(key, make)
