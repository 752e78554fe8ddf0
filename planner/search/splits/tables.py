"""Tables of split layouts: memory peaks, which no device changes, and stages of one device."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from math import prod
from typing import NamedTuple

import numpy as np

from ....catalog.vocabulary import Recompute
from ...hardware.cluster import Site
from ...plan.errors import UnsupportedError
from ...plan.setup import Setup
from ...predict.kept.kept_tables import kept_array
from ...predict.kept.model_cache import ModelCache
from ...predict.memory.split_memory import accumulations, split_peaks, stages_of
from ...predict.split_step import slowest_stages_of, split_shares
from ...predict.step_time import sent_parts_of
from ...step.exchange_times import links_used
from ...step.model_parallel_step import SECONDS, SlowestStages, boundary_bytes
from .rows import Kind, SplitRows

ZERO_STAGES = (0, 1, 2, 3)


class MemoryTable(NamedTuple):
    """Peaks in one flat table, and where those of each row begin."""

    peaks: np.ndarray
    offset: np.ndarray
    recompute_stride: np.ndarray
    accumulation_stride: np.ndarray


class StageTable(NamedTuple):
    """The slowest stage of a micro-batch on one site, flat over [split, recompute, pipeline, B]."""

    seconds: dict[str, np.ndarray]
    others_s: np.ndarray
    boundary_bytes: np.ndarray
    """[splits] per sample."""
    sent_parts: np.ndarray
    """[splits] tensor ranks among which that is scattered when it is sent."""


@dataclass
class SplitTables:
    """What the predictions of the rows look up; every table is made when it is first asked for."""

    cache: ModelCache
    rows: SplitRows
    recomputes: tuple[Recompute, ...]
    node_counts: tuple[int, ...]
    micro_batches: np.ndarray
    """[B] sizes that are tried."""
    _memory: dict[tuple[Setup, tuple[int, ...]], MemoryTable] = field(default_factory=dict)
    _stages: dict[tuple[object, ...], StageTable] = field(default_factory=dict)
    _slowest: dict[tuple[object, ...], list[SlowestStages]] = field(default_factory=dict)
    _boundaries: dict[Setup, np.ndarray] = field(default_factory=dict)

    def stages(self, site: Site, base: Setup) -> StageTable:
        """Return the slowest stages of every split, recompute policy and pipeline."""
        links = (site.domain, site.intra_link.bytes_per_s, site.domain_bytes_per_s)
        key = (site.accelerator.name, *links, site.fabric, base)
        if key not in self._stages:
            self._stages[key] = self._made_stages(site, base)
        return self._stages[key]

    def _made_stages(self, site: Site, base: Setup) -> StageTable:
        widths = len(self.rows.pipelines), len(self.micro_batches)
        shape = (len(self.rows.splits), len(self.recomputes), *widths)
        seconds = {name: np.full(shape, np.inf) for name in SECONDS}
        others, boundary = np.full(shape, np.inf), np.zeros(shape[0])
        for s in self._splits_on(site):
            for r, one in enumerate(self._slowest_stages(site, base, s)):
                others[s, r] = one.others_s
                for name in SECONDS:
                    seconds[name][s, r] = one.seconds[name]
            boundary[s] = self._boundary(base, s)
        flat = {name: table.ravel() for name, table in seconds.items()}
        layouts = [split.smallest() for split in self.rows.splits]
        parts = [sent_parts_of(replace(base, layout=layout)) for layout in layouts]
        return StageTable(
            seconds=flat,
            others_s=others.ravel(),
            boundary_bytes=boundary,
            sent_parts=np.array(parts, dtype=int),
        )

    def _slowest_stages(self, site: Site, base: Setup, s: int) -> list[SlowestStages]:
        """Return the slowest stages by recompute policy; none where a split is not possible.

        Machines share them whose ranks exchange over equal links: most splits stay in a node.
        """
        setup = replace(base, layout=self.rows.splits[s].smallest())
        key = site.accelerator.name, links_used(setup.layout, site), setup
        if key not in self._slowest:
            pipelines, sizes = tuple(self.rows.pipelines), self.micro_batches
            try:
                self._slowest[key] = slowest_stages_of(
                    self.cache, site, setup, self.recomputes, pipelines, sizes
                )
            except UnsupportedError:
                self._slowest[key] = []
        return self._slowest[key]

    def boundaries(self, base: Setup) -> np.ndarray:
        """Return [splits] bytes per sample of the residual stream between two stages."""
        if base not in self._boundaries:
            splits = range(len(self.rows.splits))
            self._boundaries[base] = np.array([self._boundary(base, s) for s in splits])
        return self._boundaries[base]

    def _boundary(self, base: Setup, s: int) -> float:
        setup = replace(base, layout=self.rows.splits[s].smallest())
        try:
            return boundary_bytes(split_shares(self.cache, setup, ("none",))[0])
        except UnsupportedError:
            return 0.0

    def _splits_on(self, site: Site) -> list[int]:
        """Return the splits that are legal on any number of such nodes."""
        kind, known = Kind(site.per_node, site.domain), site.inter_link.bytes_per_s is not None
        counts = [nodes for nodes in self.node_counts if nodes == 1 or known]
        rows = [self.rows.legal[kind, nodes] for nodes in counts]
        return sorted({int(s) for own in rows for s in np.unique(self.rows.facts["split"][own])})

    def memory(self, base: Setup, zero_stages: tuple[int, ...] = ZERO_STAGES) -> MemoryTable:
        """Return the peaks of all rows; no device changes them, nor does torch's 16-bit format.

        Args:
            base: precision and software.
            zero_stages: those that run so, in order; peaks of rows of others are infinite.
        """
        if base.stack.startswith("torch") and base.precision == "fp16-amp":
            base = replace(base, precision="bf16-amp")
        key = base, zero_stages
        if key not in self._memory:
            self._memory[key] = self._made_memory(*key)
        return self._memory[key]

    def _made_memory(self, base: Setup, zero_stages: tuple[int, ...]) -> MemoryTable:
        shapes = [self._shape_of_split(s) for s in range(len(self.rows.splits))]
        begins = np.cumsum([0, *(prod(shape) for shape in shapes)])
        facts = self.rows.facts
        split, sizes = facts["split"], len(self.micro_batches)
        by_accumulation = np.array([prod(shape[2:]) for shape in shapes])
        offset = begins[split] + facts["pipeline_index"] * sizes
        offset = offset + facts["shards"] * len(self.rows.pipelines) * sizes
        return MemoryTable(
            peaks=kept_array(
                self.cache.kept,
                lambda: self._facts(base, zero_stages),
                int(begins[-1]),
                lambda: self._peaks(base, zero_stages),
            ),
            offset=offset,
            recompute_stride=np.array([prod(shape[1:]) for shape in shapes])[split],
            accumulation_stride=by_accumulation[split],
        )

    def _facts(self, base: Setup, zero_stages: tuple[int, ...]) -> dict[str, object]:
        """Return all that the peaks follow from, beside the code."""
        setup = {one.name: getattr(base, one.name) for one in fields(base)}
        return {
            "what": "memory peaks of split layouts",
            "profile": self.cache.profile_digest,
            "constants": sorted(self.cache.constants.items()),
            "setup": {name: _ordered(value) for name, value in setup.items()},
            "splits": self.rows.splits,
            "pipelines": self.rows.pipelines,
            "shards": self.rows.shards,
            "zero_stages": zero_stages,
            "recomputes": self.recomputes,
            "micro_batches": self.micro_batches.tolist(),
        }

    def _peaks(self, base: Setup, zero_stages: tuple[int, ...]) -> np.ndarray:
        """Return the peaks of all splits, one after the other."""
        splits = range(len(self.rows.splits))
        parts = [self._peaks_of_split(base, s, zero_stages).ravel() for s in splits]
        return np.concatenate(parts)

    def _shape_of_split(self, s: int) -> tuple[int, ...]:
        """Return how many recompute policies, ways to accumulate, data dimensions, pipelines, B."""
        ways, held = len(accumulations(1, 1)), self.rows.shards[s]
        widths = len(self.rows.pipelines), len(self.micro_batches)
        return len(self.recomputes), ways, len(held), *widths

    def _peaks_of_split(self, base: Setup, s: int, zero_stages: tuple[int, ...]) -> np.ndarray:
        """Return [recompute, way of accumulating, data dimension, pipeline, B] peaks."""
        pipelines, sizes, held = self.rows.pipelines, self.micro_batches, self.rows.shards[s]
        peaks = np.full(self._shape_of_split(s), np.inf)
        for r, recompute in enumerate(self.recomputes):
            setup = replace(base, layout=self.rows.splits[s].smallest(), recompute=recompute)
            try:
                stages, owners = stages_of(self.cache, setup, pipelines, sizes)
            except UnsupportedError:
                continue
            for stage in sorted({stage for stage, _ in held} & set(zero_stages)):
                at = [z for z, (of, _) in enumerate(held) if of == stage]
                shards = [held[z][1] for z in at]
                peaks[r][:, at] = split_peaks(self.cache, setup, stages, owners, stage, shards)
        return peaks


def _ordered(value: object) -> object:
    """Return a set in order, for a set's own order differs from process to process."""
    return sorted(value) if isinstance(value, frozenset) else value
