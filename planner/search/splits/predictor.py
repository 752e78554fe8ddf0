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
from ...hardware.device import capacity_bytes
from ...memory.framework_memory import COMMUNICATOR_BYTES, framework_bytes
from ...offload.host_memory import kept_bytes
from ...parallelism.legal_layouts import limits_of
from ...plan.layout import Layout
from ...plan.runnable import why_not_runnable
from ...plan.setup import Setup
from ...predict.interval import safe_allocator_bytes, usual_sigma
from ...predict.kept.model_cache import ModelCache
from ...predict.split_step import Candidates, split_parts
from ...predict.step_time import wire_of
from ...software.stack import casts_layers
from ...step.data_parallel_step import StepTimes
from ...step.kernel_totals import MicroBatchTimes
from ...step.model_parallel_step import SECONDS, hybrid_traffic
from ..layouts.data_parallel import USUAL_FRAGMENTATION
from ..layouts.some_layers import FRAGMENTATION, ends_of, equal_layers, least_share
from ..search_space import Space, few_micro_batches
from ..step_doubt import mean_over_likely
from .candidates import Fitting, Needed
from .outcome import Found, Outcome
from .rows import Kind, SplitRows
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
        return cls(cache=cache, space=space, rows=rows, tables=tables)

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
            own = rows[self._runs_under(base, several=len(bases) > 1)[rows]]
            if not len(own):
                continue
            fitting, missed, indivisible = self._fitting(site, base, own, i, max_oom)
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

    def _runs_under(self, base: Setup, *, several: bool) -> np.ndarray:
        """Return [rows] whether a row's layers are cast as the base says, if that differs."""

        def make() -> np.ndarray:
            layouts = (Layout(data=2, shard=2, zero_stage=stage) for stage in range(4))
            casts = np.array([casts_layers(base.stack, one, base.offload) for one in layouts])
            return (casts == base.autocast)[self.rows.facts["zero_stage"]]

        if not several:
            return np.ones(len(self.rows.rows), dtype=bool)
        return self.cache.shared(("casts", id(self), base.autocast, len(self.rows.rows)), make)

    def _fitting(
        self, site: Site, base: Setup, rows: np.ndarray, index: int, max_oom: float
    ) -> tuple[Fitting, int, int]:
        """Return the candidates that fit, and how many do not: for their memory, or their batch."""
        facts = self.rows.facts
        needed = self.cache.shared(
            ("needed", id(self), base, rows.tobytes()), lambda: self._needed(base, rows)
        )
        outside = framework_bytes(site.accelerator, communicators=0, date=base.software_date)
        outside = outside + facts["communicators"][rows] * COMMUNICATOR_BYTES
        room = safe_allocator_bytes(
            capacity_bytes(site.accelerator),
            outside,
            margin=facts["oom_margin"][rows],
            sigma=np.maximum(facts["memory_sigma"][rows], usual_sigma(base.stack)),
            max_oom=max_oom,
        )
        room = np.where(self._fits_host(site, base, rows), room / USUAL_FRAGMENTATION, -np.inf)
        some = np.flatnonzero(needed.least <= room)
        row, policy, size = np.nonzero(needed.peaks[some] <= room[some, None, None])
        row = some[row]
        chosen = rows[row]
        place = self._place(chosen, policy, size)
        found = Fitting(
            row=chosen,
            recompute=policy,
            size=size,
            accum=needed.accum[row, size],
            place=place,
            kept_place=place,
            share=np.ones(len(row)),
            base=np.full(len(row), index),
        )
        missed = needed.peaks.size - needed.indivisible - len(row)
        if self._ends is None:
            return found, missed, needed.indivisible
        some = self._some_layers(rows, needed, room, some, index)
        return found.beside(some), missed, needed.indivisible

    def _fits_host(self, site: Site, base: Setup, rows: np.ndarray) -> np.ndarray:
        """Return [rows] whether the host of a node can hold what its ranks offload, if known."""
        if not base.offload or site.host_memory_bytes is None:
            return np.ones(len(rows), dtype=bool)
        on_host = kept_bytes(
            self.cache.profile,
            base.precision,
            base.offload,
            stepped=self.rows.facts["stepped"][rows],
            activation_bytes=0.0,
        )
        return np.asarray(on_host) * site.per_node <= site.host_memory_bytes

    def _place(self, rows: np.ndarray, policy: np.ndarray | int, size: np.ndarray) -> np.ndarray:
        """Return where the seconds of a stage are."""
        facts = self.rows.facts
        place = facts["split"][rows] * len(self.space.recomputes) + policy
        place = place * len(self.rows.pipelines) + facts["pipeline_index"][rows]
        return place * len(self.tables.micro_batches) + size

    @property
    def _ends(self) -> tuple[int, int] | None:
        return ends_of(self.space.recomputes, self.cache.profile)

    def _some_layers(
        self, rows: np.ndarray, needed: Needed, room: np.ndarray, some: np.ndarray, index: int
    ) -> Fitting:
        """Return the candidates that fit where only some of the layers are recomputed."""
        assert self._ends is not None
        none, full = self._ends
        layers = equal_layers(self.cache.profile) // self.rows.facts["pipeline"][rows]
        share = least_share(
            needed.peaks[some, none],
            needed.peaks[some, full],
            room[some, None] * (USUAL_FRAGMENTATION / FRAGMENTATION),
            layers=np.maximum(layers, 1)[some, None],
        )
        row, size = np.nonzero((share > 0) & (share < 1))
        share, row = share[row, size], some[row]
        chosen = rows[row]
        return Fitting(
            row=chosen,
            recompute=np.full(len(row), full),
            size=size,
            accum=needed.accum[row, size],
            place=self._place(chosen, full, size),
            kept_place=self._place(chosen, none, size),
            share=share,
            base=np.full(len(row), index),
        )

    def _needed(self, base: Setup, rows: np.ndarray) -> Needed:
        """Return what rows need, which all devices on such nodes have in common."""
        sizes = self.tables.micro_batches
        accum, divides, several = self._accumulation(rows, sizes)
        memory = self.tables.memory(base)
        policies = np.arange(len(self.space.recomputes))
        at = memory.offset[rows, None, None] + np.arange(len(sizes))
        at = at + memory.recompute_stride[rows, None, None] * policies[None, :, None]
        at = at + (memory.accumulation_stride[rows, None] * several)[:, None, :]
        peaks = np.where(divides[:, None, :], memory.peaks[at], np.inf)
        return Needed(
            accum=accum,
            peaks=peaks,
            least=peaks.min(axis=(1, 2)),
            indivisible=int((~divides).sum()) * len(policies),
        )

    def _accumulation(
        self, rows: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return [N, B] accumulation, whether it is legal, and whether it is the second way.

        Stages take as many micro-batches as there are stages or more, interleaved ones a multiple
        of it (Narayanan et al. 2021, section 2.2); legal is what also makes the global batch.
        """
        facts, wanted = self.rows.facts, self.space.global_batch
        at_once = facts["data"][rows, None] * sizes
        accum = np.maximum((wanted or 0) // at_once, 1)
        if self.space.grad_accums:
            accum = np.full_like(at_once, self.space.grad_accums[0])
        divides = np.ones_like(accum, dtype=bool) if wanted is None else accum * at_once == wanted
        pipeline = facts["pipeline"][rows, None]
        interleaved = facts["virtual_stages"][rows, None] > 1
        divides = divides & (accum >= pipeline) & (~interleaved | (accum % pipeline == 0))
        return accum, divides, accum > pipeline

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
            ("traffic", id(self), rows.tobytes()), lambda: self.rows.traffic(rows)
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

        key = ("runnable", id(self), base.precision, base.offload, len(self.rows.rows))
        return self.cache.shared(key, make)
