"""Which layouts that split the model fit: their memory, their global batch, their host's memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...hardware.cluster import Site
from ...hardware.device import capacity_bytes
from ...memory.framework_memory import COMMUNICATOR_BYTES, framework_bytes
from ...memory.stages.sent import sent_bytes
from ...offload.host_memory import kept_bytes
from ...plan.layout import Layout
from ...plan.setup import Setup
from ...predict.interval import safe_allocator_bytes, usual_sigma
from ...predict.kept.model_cache import ModelCache
from ...software.stack import casts_layers, runs_torch_pipelines
from ..layouts.data_parallel import USUAL_FRAGMENTATION
from ..layouts.some_layers import FRAGMENTATION, ends_of, equal_layers, least_share
from ..search_space import Space
from .candidates import Fitting, Needed
from .rows import SplitRows
from .tables import ZERO_STAGES, SplitTables


@dataclass
class SplitFits:
    """Says which candidates of one model under one software stack fit on a kind of node."""

    cache: ModelCache
    space: Space
    rows: SplitRows
    tables: SplitTables

    def zero_stages_under(self, base: Setup, *, several: bool) -> tuple[int, ...]:
        """Return the ZeRO stages whose layers are cast as the base says, all if it alone is."""
        if not several:
            return ZERO_STAGES
        layouts = {one: Layout(data=2, shard=2, zero_stage=one) for one in ZERO_STAGES}
        return tuple(
            stage
            for stage, layout in layouts.items()
            if casts_layers(base.stack, layout, base.offload) == base.autocast
        )

    def runs_under(self, base: Setup, *, several: bool) -> np.ndarray:
        """Return [rows] whether a row's layers are cast as the base says, if that differs."""
        stages = self.zero_stages_under(base, several=several)

        def make() -> np.ndarray:
            return np.isin(self.rows.facts["zero_stage"], stages)

        return self.cache.shared(("casts", self.rows.key, stages, len(self.rows.rows)), make)

    def of(
        self,
        site: Site,
        base: Setup,
        rows: np.ndarray,
        index: int,
        max_oom: float,
        *,
        zero_stages: tuple[int, ...] = ZERO_STAGES,
    ) -> tuple[Fitting, np.ndarray, np.ndarray]:
        """Return the candidates that fit, and how many of each row do not, [rows].

        The first number is of those that take too much memory, the second of those that do not make
        the global batch.

        Args:
            site: one node.
            base: precision and software.
            rows: what is tried, all of
            zero_stages: these.
            index: of the base among those that are tried.
            max_oom: chance of running out of memory that is accepted.
        """
        facts = self.rows.facts
        needed = self.cache.shared(
            ("needed", self.rows.key, base, zero_stages, rows.tobytes()),
            lambda: self._needed(base, rows, zero_stages),
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
        fitting = np.bincount(row, minlength=len(rows))
        missed = needed.peaks[0].size - needed.indivisible - fitting
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

    def _needed(self, base: Setup, rows: np.ndarray, zero_stages: tuple[int, ...]) -> Needed:
        """Return what rows need, which all devices on such nodes have in common."""
        sizes = self.tables.micro_batches
        accum, divides, several = self._accumulation(rows, sizes)
        memory = self.tables.memory(base, zero_stages)
        policies = np.arange(len(self.space.recomputes))
        at = memory.offset[rows, None, None] + np.arange(len(sizes))
        at = at + memory.recompute_stride[rows, None, None] * policies[None, :, None]
        at = at + (memory.accumulation_stride[rows, None] * several)[:, None, :]
        peaks = memory.peaks[at] + self._sent(base, rows, accum)[:, None, :]
        peaks = np.where(divides[:, None, :], peaks, np.inf)
        return Needed(
            accum=accum,
            peaks=peaks,
            least=peaks.min(axis=(1, 2)),
            indivisible=(~divides).sum(axis=1) * len(policies),
        )

    def _sent(self, base: Setup, rows: np.ndarray, accum: np.ndarray) -> np.ndarray:
        """Return [N, B] bytes that interleaved stages sent and still hold."""
        facts = {name: self.rows.facts[name][rows] for name in ("virtual_stages", "split")}
        if not runs_torch_pipelines(base.stack) or facts["virtual_stages"].max(initial=1) == 1:
            return np.zeros(accum.shape)
        boundary = self.tables.boundaries(base)[facts["split"], None] * self.tables.micro_batches
        return sent_bytes(boundary, facts["virtual_stages"][:, None], accum)

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
