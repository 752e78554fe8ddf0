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
from ...predict.split_step import Candidates, split_parts
from ...predict.step_time import wire_of
from ...step.data_parallel_step import StepTimes
from ...step.kernel_totals import MicroBatchTimes
from ...step.model_parallel_step import SECONDS, hybrid_traffic
from ..search_space import Space, few_micro_batches
from ..step_doubt import mean_over_likely
from .candidates import Fitting
from .outcome import Found, Outcome
from .rows import Kind, SplitRows
from .split_fits import SplitFits
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
        nodes: int,
        *,
        bound_s: float,
        max_oom: float = 1.0,
    ) -> Outcome:
        """Return the fastest layouts of a site that fit, if they are faster than `bound_s`.

        Args:
            site: one node of it.
            bases: precision and software; with autocast, without it, or both.
            nodes: how many of them.
            bound_s: step time of the best layout that splits only the data.
            max_oom: chance of running out of memory that is accepted.
        """
        rows = self.rows.legal[Kind(site.per_node, site.domain), nodes]
        parts, short, uneven = [], 0, 0
        for i, base in enumerate(bases):
            own = rows[self.fits.runs_under(base, several=len(bases) > 1)[rows]]
            if not len(own):
                continue
            fitting, missed, indivisible = self.fits.of(site, base, own, i, max_oom)
            parts.append(fitting)
            short, uneven = short + missed, uneven + indivisible
        if not parts:
            return Outcome(found=(), fitting=0, out_of_memory=0, indivisible=0, timed=0)
        these = Fitting(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        found, timed = (), 0
        if len(these.row):
            found, timed = self._fastest(site, bases, these, rows, bound_s)
        return Outcome(
            found=found,
            fitting=len(these.row),
            out_of_memory=short,
            indivisible=uneven,
            timed=timed,
        )

    def _fastest(
        self,
        site: Site,
        bases: Sequence[Setup],
        these: Fitting,
        rows: np.ndarray,
        bound_s: float,
    ) -> tuple[tuple[Found, ...], int]:
        """Return the fastest candidates below the bound, and how many had to be timed.

        No step is shorter than its micro-batches on the slowest stage and the wait for the others:
        everything else in it takes no time or some. What this alone makes slower than a known
        candidate of its kind (run by the runner or not) is not timed.
        """
        runs = self._runnable(bases[0])[these.row]
        known = {True: (bound_s, -1), False: (bound_s, -1)}
        least_s = self._least_s(site, bases, these)
        left = np.flatnonzero(least_s < bound_s)
        left = left[np.argsort(least_s[left], kind="stable")]
        timed = 0
        for part in (left[:FIRST_LOOK], left[FIRST_LOOK:]):
            limit = np.where(runs[part], known[True][0], min(known[True][0], known[False][0]))
            part = part[least_s[part] < limit]
            timed += len(part)
            if not len(part):
                continue
            step_s = self.step_s(site, bases, these, part, rows)
            for kind in (True, False):
                own = np.flatnonzero(runs[part] == kind)
                if len(own) and step_s[own].min() < known[kind][0]:
                    best = own[step_s[own].argmin()]
                    known[kind] = float(step_s[best]), int(part[best])
        chosen = [known[True]]
        if known[False][0] < known[True][0]:
            chosen.append(known[False])
        found = [
            self._found(site, bases, these, at, seconds, rows) for seconds, at in chosen if at >= 0
        ]
        return tuple(found), timed

    def _found(
        self,
        site: Site,
        bases: Sequence[Setup],
        these: Fitting,
        at: int,
        seconds: float,
        rows: np.ndarray,
    ) -> Found:
        """Return the candidate in one place, whose step takes so many seconds."""
        base = bases[these.base[at]]
        setup = replace(
            base,
            layout=self.rows.layout(self.rows.rows[these.row[at]]),
            micro_batch=int(self.tables.micro_batches[these.size[at]]),
            grad_accum=int(these.accum[at]),
            recompute=self.space.recomputes[these.recompute[at]],
            recompute_share=float(these.share[at]),
        )
        one = Fitting(*(column[at : at + 1] for column in these))
        parts = self._parts(site, base, one, rows).at(0)
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

    def _least_s(self, site: Site, bases: Sequence[Setup], these: Fitting) -> np.ndarray:
        """Return seconds that no step of the candidates is shorter than."""
        least = np.empty(len(these.row))
        facts = self.rows.facts
        waits = np.where(facts["pipeline"] > 1, 1 / facts["virtual_stages"], 0.0)
        for i, base in enumerate(bases):
            own = these.base == i
            if not own.any():
                continue
            stages = self.tables.stages(site, base)
            some = Fitting(*(column[own] for column in these))
            one = some.seconds(stages.seconds["forward_s"])
            one += some.seconds(stages.seconds["backward_s"])
            least[own] = some.accum * one + waits[some.row] * some.seconds(stages.others_s)
        return least

    def step_s(
        self,
        site: Site,
        bases: Sequence[Setup],
        these: Fitting,
        part: np.ndarray,
        rows: np.ndarray,
    ) -> np.ndarray:
        """Return the step times of some candidates.

        Args:
            site: device and links.
            bases: precision and software.
            these: candidates, of which
            part: are wanted.
            rows: all rows of these nodes, whose collectives are timed together.
        """
        seconds = np.empty(len(part))
        for i, base in enumerate(bases):
            own = np.flatnonzero(these.base[part] == i)
            if len(own):
                chosen = Fitting(*(column[part[own]] for column in these))
                seconds[own] = self._parts(site, base, chosen, rows).total_s
        return seconds

    def _parts(self, site: Site, base: Setup, these: Fitting, rows: np.ndarray) -> StepTimes:
        """Return the steps of candidates of one software, [candidates]."""
        facts = {name: column[these.row] for name, column in self.rows.facts.items()}
        stages = self.tables.stages(site, base)
        taken = {name: these.seconds(stages.seconds[name]) for name in SECONDS}
        table, place = self.cache.shared(
            ("traffic", self.rows.key, rows.tobytes()), lambda: self.rows.traffic(rows)
        )
        links = self.cache.links(site)
        ranks = np.full((table.rows, 1), facts["accelerators"][0])
        traffic = hybrid_traffic(table, ranks, links, wire_of(base))
        sent = stages.boundary_bytes[facts["split"]] * self.tables.micro_batches[these.size]
        candidates = Candidates(
            micro_batch=MicroBatchTimes(
                taken["forward_s"], taken["backward_s"], taken["compute_s"], taken["memory_s"]
            ),
            communication={name: taken[name] for name in SECONDS if name.endswith("_comm_s")},
            others_s=these.seconds(stages.others_s),
            boundary_bytes=sent,
            on_fast_link=facts["accelerators"] <= site.domain,
            pipeline=facts["pipeline"],
            virtual_stages=facts["virtual_stages"],
            traffic=traffic.rows(place[facts["traffic"]]),
            stepped=facts["stepped"],
            accumulated=facts["accumulated"],
            grad_accum=these.accum,
        )
        return split_parts(self.cache, site, base, candidates)

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
