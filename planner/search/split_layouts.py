"""Layouts that split the model: step times and memory of all of them on one kind of node at once.

Three tables are made, each once for what its entries depend on: memory peaks, which no device
changes; the slowest stage of a micro-batch, which no data degree changes; collectives of the data
dimension. A candidate (layout, recompute policy, micro-batch) is then a place in each of them, and
its step time is arithmetic over arrays of candidates (`predict/split_step.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...catalog.vocabulary import Recompute
from ..hardware.cluster import Site
from ..hardware.device import capacity_bytes
from ..memory.framework_memory import COMMUNICATOR_BYTES, framework_bytes
from ..parallelism.legal_layouts import limits_of
from ..plan.errors import UnsupportedError
from ..plan.layout import Layout
from ..plan.runnable import why_not_runnable
from ..plan.setup import Setup
from ..predict.model_cache import ModelCache
from ..predict.split_memory import accumulations, split_peaks, stages_of
from ..predict.split_step import Candidates, slowest_stages_of, split_parts, split_shares
from ..predict.step_time import wire_of
from ..software.stack import casts_layers
from ..step.kernel_totals import MicroBatchTimes
from ..step.model_parallel_step import SECONDS, boundary_bytes, hybrid_traffic
from .data_parallel import USUAL_FRAGMENTATION
from .search_space import Space, few_micro_batches
from .split_rows import Kind, SplitRows

FIRST_LOOK = 512
"""Candidates with the smallest lower bounds that are timed before the others are compared."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The fastest candidate of some nodes."""

    layout: Layout
    base: Setup
    micro_batch: int
    grad_accum: int
    recompute: Recompute
    step_s: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of the candidates of some nodes."""

    found: tuple[Found, ...]
    """The fastest, and the fastest that gpuplan's runner runs, if it is another."""
    fitting: int
    out_of_memory: int
    indivisible: int
    timed: int
    """Of those that fit, how many had to be timed: the others are slower than what is known."""


class _Memory(NamedTuple):
    """Peaks in one flat table, and where those of each row begin."""

    peaks: np.ndarray
    offset: np.ndarray
    recompute_stride: np.ndarray
    accumulation_stride: np.ndarray


class _Stages(NamedTuple):
    """The slowest stage of a micro-batch on one site, flat over [split, recompute, pipeline, B]."""

    seconds: dict[str, np.ndarray]
    others_s: np.ndarray
    boundary_bytes: np.ndarray
    """[splits] per sample."""


class _Fitting(NamedTuple):
    """Candidates that fit: their row, recompute policy, micro-batch and accumulation."""

    row: np.ndarray
    recompute: np.ndarray
    size: np.ndarray
    accum: np.ndarray
    place: np.ndarray
    """Where their stage's seconds are."""
    base: np.ndarray
    """Which of the bases they run under."""


@dataclass
class SplitPredictor:
    """Predicts layouts that split one model under one software stack."""

    cache: ModelCache
    space: Space
    rows: SplitRows
    _memory: dict[Setup, _Memory] = field(default_factory=dict)
    _stages: dict[tuple[object, ...], _Stages] = field(default_factory=dict)

    @classmethod
    def of(
        cls, cache: ModelCache, space: Space, base: Setup, kinds: Sequence[Kind]
    ) -> SplitPredictor | None:
        """Return the predictor of a model; None where it cannot be split, or on no such nodes.

        Args:
            cache: the model.
            space: what is searched.
            base: precision and software, which say what is traced.
            kinds: of nodes that may be asked for.
        """
        numerics = cache.numerics(base.precision, autocast=base.autocast)
        limits = limits_of(cache.trace_in(numerics, "none"), cache.profile.tokens_per_sample)
        if limits is None:
            return None
        rows = SplitRows(cache, limits, base)
        rows.add(kinds, space.node_counts)
        return cls(cache=cache, space=space, rows=rows) if rows.rows else None

    @property
    def micro_batches(self) -> np.ndarray:
        """[B] sizes that are tried."""
        return np.array(few_micro_batches(self.space.micro_batches))

    def best(
        self,
        site: Site,
        bases: Sequence[Setup],
        nodes: int,
        *,
        bound_s: float,
        headroom: float = 1.0,
    ) -> Outcome:
        """Return the fastest layouts of a site that fit, if they are faster than `bound_s`.

        Args:
            site: one node of it.
            bases: precision and software; with autocast, without it, or both.
            nodes: how many of them.
            bound_s: step time of the best layout that splits only the data.
            headroom: share of the device's memory that may be used.
        """
        rows = self.rows.legal[Kind(site.per_node, site.domain), nodes]
        parts, short, uneven = [], 0, 0
        for i, base in enumerate(bases):
            own = rows[self._runs_under(base, several=len(bases) > 1)[rows]]
            if not len(own):
                continue
            fitting, missed, indivisible = self._fitting(site, base, own, i, headroom)
            parts.append(fitting)
            short, uneven = short + missed, uneven + indivisible
        if not parts:
            return Outcome(found=(), fitting=0, out_of_memory=0, indivisible=0, timed=0)
        these = _Fitting(*(np.concatenate(column) for column in zip(*parts, strict=True)))
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
            casts = np.array([casts_layers(base.stack, one) for one in layouts])
            return (casts == base.autocast)[self.rows.facts["zero_stage"]]

        if not several:
            return np.ones(len(self.rows.rows), dtype=bool)
        return self.cache.shared(("casts", id(self), base.autocast, len(self.rows.rows)), make)

    def _fitting(
        self, site: Site, base: Setup, rows: np.ndarray, index: int, headroom: float
    ) -> tuple[_Fitting, int, int]:
        """Return the candidates that fit, and how many do not: for their memory, or their batch."""
        facts, sizes = self.rows.facts, self.micro_batches
        accum, divides, several = self._accumulation(rows, sizes)
        memory = self._memory_of(base)
        policies = np.arange(len(self.space.recomputes))
        at = memory.offset[rows, None, None] + np.arange(len(sizes))
        at = at + memory.recompute_stride[rows, None, None] * policies[None, :, None]
        at = at + (memory.accumulation_stride[rows, None] * several)[:, None, :]
        outside = framework_bytes(site.accelerator, communicators=0)
        outside = outside + facts["communicators"][rows] * COMMUNICATOR_BYTES
        room = (headroom * capacity_bytes(site.accelerator) - outside) / USUAL_FRAGMENTATION
        fits = memory.peaks[at] <= room[:, None, None]
        row, policy, size = np.nonzero(fits & divides[:, None, :])
        chosen = rows[row]
        place = facts["split"][chosen] * len(policies) + policy
        place = place * len(self.rows.pipelines) + facts["pipeline_index"][chosen]
        found = _Fitting(
            row=chosen,
            recompute=policy,
            size=size,
            accum=accum[row, size],
            place=place * len(sizes) + size,
            base=np.full(len(row), index),
        )
        uneven = int((~divides).sum()) * len(policies)
        return found, fits.size - uneven - len(row), uneven

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
        these: _Fitting,
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
        found = [self._found(bases, these, at, seconds) for seconds, at in chosen if at >= 0]
        return tuple(found), timed

    def _found(self, bases: Sequence[Setup], these: _Fitting, at: int, seconds: float) -> Found:
        return Found(
            layout=self.rows.layout(self.rows.rows[these.row[at]]),
            base=bases[these.base[at]],
            micro_batch=int(self.micro_batches[these.size[at]]),
            grad_accum=int(these.accum[at]),
            recompute=self.space.recomputes[these.recompute[at]],
            step_s=seconds,
        )

    def _least_s(self, site: Site, bases: Sequence[Setup], these: _Fitting) -> np.ndarray:
        """Return seconds that no step of the candidates is shorter than."""
        least = np.empty(len(these.row))
        facts = self.rows.facts
        waits = np.where(facts["pipeline"] > 1, 1 / facts["virtual_stages"], 0.0)
        for i, base in enumerate(bases):
            own = these.base == i
            if not own.any():
                continue
            stages, at = self._stages_of(site, base), these.place[own]
            one = stages.seconds["forward_s"][at] + stages.seconds["backward_s"][at]
            least[own] = these.accum[own] * one + waits[these.row[own]] * stages.others_s[at]
        return least

    def step_s(
        self,
        site: Site,
        bases: Sequence[Setup],
        these: _Fitting,
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
                chosen = _Fitting(*(column[part[own]] for column in these))
                seconds[own] = self._step_s(site, base, chosen, rows)
        return seconds

    def _step_s(self, site: Site, base: Setup, these: _Fitting, rows: np.ndarray) -> np.ndarray:
        facts = {name: column[these.row] for name, column in self.rows.facts.items()}
        stages = self._stages_of(site, base)
        taken = {name: stages.seconds[name][these.place] for name in SECONDS}
        table, place = self.cache.shared(
            ("traffic", id(self), rows.tobytes()), lambda: self.rows.traffic(rows)
        )
        links = self.cache.links(site)
        ranks = np.full((table.rows, 1), facts["accelerators"][0])
        traffic = hybrid_traffic(table, ranks, links, wire_of(base))
        sent = stages.boundary_bytes[facts["split"]] * self.micro_batches[these.size]
        candidates = Candidates(
            micro_batch=MicroBatchTimes(
                taken["forward_s"], taken["backward_s"], taken["compute_s"], taken["memory_s"]
            ),
            communication={name: taken[name] for name in SECONDS if name.endswith("_comm_s")},
            others_s=stages.others_s[these.place],
            boundary_bytes=sent,
            on_fast_link=facts["accelerators"] <= site.domain,
            pipeline=facts["pipeline"],
            virtual_stages=facts["virtual_stages"],
            traffic=traffic.rows(place[facts["traffic"]]),
            stepped=facts["stepped"],
            accumulated=facts["accumulated"],
            grad_accum=these.accum,
        )
        return split_parts(self.cache, site, base, candidates).total_s

    def _stages_of(self, site: Site, base: Setup) -> _Stages:
        """Return the slowest stages of every split, recompute policy and pipeline."""
        links = (site.domain, site.intra_link.bytes_per_s, site.domain_bytes_per_s)
        key = (site.accelerator.name, *links, site.inter_link.rdma, base)
        if key not in self._stages:
            self._stages[key] = self._made_stages(site, base)
        return self._stages[key]

    def _made_stages(self, site: Site, base: Setup) -> _Stages:
        pipelines, sizes = tuple(self.rows.pipelines), self.micro_batches
        policies = self.space.recomputes
        shape = (len(self.rows.splits), len(policies), len(pipelines), len(sizes))
        seconds = {name: np.full(shape, np.inf) for name in SECONDS}
        others, boundary = np.full(shape, np.inf), np.zeros(shape[0])
        for s in self._splits_on(site):
            setup = replace(base, layout=self.rows.splits[s].smallest())
            try:
                found = slowest_stages_of(self.cache, site, setup, policies, pipelines, sizes)
            except UnsupportedError:
                continue
            for r, one in enumerate(found):
                others[s, r] = one.others_s
                for name in SECONDS:
                    seconds[name][s, r] = one.seconds[name]
            boundary[s] = boundary_bytes(split_shares(self.cache, setup, ("none",))[0])
        flat = {name: table.ravel() for name, table in seconds.items()}
        return _Stages(seconds=flat, others_s=others.ravel(), boundary_bytes=boundary)

    def _splits_on(self, site: Site) -> list[int]:
        """Return the splits that are legal on any number of such nodes."""
        kind, known = Kind(site.per_node, site.domain), site.inter_link.bytes_per_s is not None
        counts = [nodes for nodes in self.space.node_counts if nodes == 1 or known]
        rows = [self.rows.legal[kind, nodes] for nodes in counts]
        return sorted({int(s) for own in rows for s in np.unique(self.rows.facts["split"][own])})

    def _memory_of(self, base: Setup) -> _Memory:
        """Return the peaks of all rows; no device changes them, nor does torch's 16-bit format."""
        if base.stack.startswith("torch") and base.precision == "fp16-amp":
            base = replace(base, precision="bf16-amp")
        if base not in self._memory:
            self._memory[base] = self._made_memory(base)
        return self._memory[base]

    def _made_memory(self, base: Setup) -> _Memory:
        tables = [self._peaks_of_split(base, s) for s in range(len(self.rows.splits))]
        begins = np.cumsum([0, *(table.size for table in tables)])
        facts = self.rows.facts
        split, sizes = facts["split"], len(self.micro_batches)
        by_accumulation = np.array([table[0, 0].size for table in tables])
        offset = begins[split] + facts["pipeline_index"] * sizes
        offset = offset + facts["shards"] * len(self.rows.pipelines) * sizes
        return _Memory(
            peaks=np.concatenate([table.ravel() for table in tables]),
            offset=offset,
            recompute_stride=np.array([table[0].size for table in tables])[split],
            accumulation_stride=by_accumulation[split],
        )

    def _peaks_of_split(self, base: Setup, s: int) -> np.ndarray:
        """Return [recompute, way of accumulating, data dimension, pipeline, B] peaks."""
        pipelines, sizes, held = self.rows.pipelines, self.micro_batches, self.rows.shards[s]
        ways, policies = len(accumulations(1, 1)), self.space.recomputes
        peaks = np.full((len(policies), ways, len(held), len(pipelines), len(sizes)), np.inf)
        for r, recompute in enumerate(policies):
            setup = replace(base, layout=self.rows.splits[s].smallest(), recompute=recompute)
            try:
                stages, owners = stages_of(self.cache, setup, pipelines, sizes)
            except UnsupportedError:
                continue
            for stage in sorted({stage for stage, _ in held}):
                at = [z for z, (of, _) in enumerate(held) if of == stage]
                shards = [held[z][1] for z in at]
                peaks[r][:, at] = split_peaks(self.cache, setup, stages, owners, stage, shards)
        return peaks

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
                offloaded=(),
                tensor_plan=profile.tensor_plan,
                tied_modules=profile.tied_modules,
                tied_blocks=profile.tied_blocks,
                blocks=blocks,
            )
            return reason is None

        def make() -> np.ndarray:
            return np.array([runs(self.rows.layout(row)) for row in self.rows.rows], dtype=bool)

        key = ("runnable", id(self), base.precision, len(self.rows.rows))
        return self.cache.shared(key, make)
