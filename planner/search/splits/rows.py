"""Every layout that splits a model on some kinds of node, as rows of arrays that sites share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...memory.framework_memory import communicators
from ...memory.stages.split_peaks import Shards
from ...parallelism.legal_layouts import Limits, Shape, legal_shapes, shardings
from ...parallelism.rank_parameters import RankUnits, data_layout, expert_data_layout
from ...plan.layout import Layout
from ...plan.setup import Setup
from ...predict.fullest_rank import fullest_rank
from ...predict.interval import oom_margin, split_sigma
from ...predict.kept.model_cache import ModelCache
from ...predict.memory.split_memory import shards_of
from ...predict.step_time import accumulated_parameters
from ...step.data_parallel_comm import TrafficRows
from ...step.model_parallel_step import hybrid_rows


class Kind(NamedTuple):
    """A kind of node as legality sees it."""

    per_node: int
    domain: int


class Row(NamedTuple):
    """One layout: which split and which pipeline, and its data dimension."""

    split: int
    pipeline: int
    data: int
    zero_stage: int
    shard: int


@dataclass
class SplitRows:
    """The rows of one model under one software stack; they are made when they are asked for.

    A *split* is a shape without its pipeline: every kernel of a rank follows from it.
    """

    cache: ModelCache
    limits: Limits
    base: Setup
    global_batch: int | None = None
    splits: list[Shape] = field(default_factory=list)
    pipelines: list[tuple[int, int]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    key: object = field(default_factory=object)
    """Tells what is shared of these rows from that of others, which an address may not: the next
    rows can have that of rows that are gone."""
    legal: dict[tuple[Kind, int], np.ndarray] = field(default_factory=dict)
    """The rows that are legal on so many nodes of a kind."""
    shards: list[list[tuple[int, Shards]]] = field(default_factory=list)
    """By split: (ZeRO stage, data dimension) of its rows."""
    _of_row: dict[Row, int] = field(default_factory=dict)
    _of_split: dict[Shape, int] = field(default_factory=dict)
    _of_pipeline: dict[tuple[int, int], int] = field(default_factory=dict)
    _of_shards: dict[tuple[object, ...], int] = field(default_factory=dict)
    _units: dict[tuple[int, int], RankUnits] = field(default_factory=dict)
    _traffic: dict[tuple[object, ...], int] = field(default_factory=dict)
    _traffic_rows: list[tuple[RankUnits, Layout]] = field(default_factory=list)
    _facts: list[tuple[float, ...]] = field(default_factory=list)

    def add(self, kinds: Iterable[Kind], node_counts: Iterable[int]) -> None:
        """Make the rows of these nodes, in these numbers; once, before anything is asked."""
        for kind in kinds:
            for nodes in node_counts:
                self.legal[kind, nodes] = self._added(kind, nodes)

    def _added(self, kind: Kind, nodes: int) -> np.ndarray:
        """Return the rows of these nodes."""
        ranks = nodes * kind.per_node
        found = []
        for shape in legal_shapes(self.limits, ranks, *kind):
            if shape.tensor > 1 and shape.sequence_parallel == self._lacks_sequence_plan:
                continue
            data = ranks // shape.ranks
            if not self._makes_batch(shape, data):
                continue
            split = self._index(
                self._of_split, self.splits, shape._replace(pipeline=1, virtual_stages=1)
            )
            pipeline = self._index(
                self._of_pipeline, self.pipelines, (shape.pipeline, shape.virtual_stages)
            )
            for zero_stage, shard in shardings(data, shape.context, kind.domain // shape.tensor):
                row = Row(split, pipeline, data, zero_stage, shard)
                index = self._of_row.get(row)
                if index is None:
                    index = self._new(row)
                found.append(index)
        return np.array(found, dtype=int)

    def _makes_batch(self, shape: Shape, data: int) -> bool:
        """Return whether some micro-batch of a layout makes the global batch, legally.

        Data ranks times micro-batch times accumulation are the global batch, so the ranks divide
        it. Stages take as many micro-batches as there are stages, interleaved ones a multiple: what
        a micro-batch of one sample cannot do, which makes the most of them, a larger one cannot.
        """
        if self.global_batch is None:
            return True
        most, rest = divmod(self.global_batch, data)
        if rest or most < shape.pipeline:
            return False
        return shape.virtual_stages == 1 or most % shape.pipeline == 0

    @property
    def _lacks_sequence_plan(self) -> bool:
        """Whether tensor ranks are searched without sequence parallelism instead of with it.

        It moves the same bytes and divides what tensor parallelism leaves whole (Korthikanti et
        al. 2022, arXiv:2205.05198, section 4.2.2), so that nothing is gained without it; but a
        model whose own plan does not split its norms is run without.
        """
        return self.cache.profile.tensor_plan == "tensor"

    @staticmethod
    def _index(known: dict, items: list, item) -> int:
        if item not in known:
            known[item] = len(items)
            items.append(item)
        return known[item]

    def _new(self, row: Row) -> int:
        self.rows.append(row)
        self._of_row[row] = len(self.rows) - 1
        layout = self.layout(row)
        units = self._fullest(row, layout)
        stepped = units.sharded(layout) if layout.zero_stage else units.trainable
        experts = expert_data_layout(layout) if units.experts else None
        wired = (units, data_layout(layout), layout.tensor, experts, layout.expert)
        if len(self.shards) <= row.split:
            self.shards += [[] for _ in range(row.split + 1 - len(self.shards))]
        held = shards_of(layout)
        shards = held if units.experts else held._replace(expert_shard=1)
        key = (row.split, row.zero_stage, shards)
        if key not in self._of_shards:
            self._of_shards[key] = len(self.shards[row.split])
            self.shards[row.split].append((row.zero_stage, shards))
        if wired not in self._traffic:
            self._traffic[wired] = len(self._traffic_rows)
            self._traffic_rows.append((units, layout))
        self._facts.append(
            (
                row.split,
                row.pipeline,
                row.data,
                row.zero_stage,
                layout.pipeline,
                layout.virtual_stages,
                layout.accelerators,
                communicators(layout, self.base.stack),
                stepped,
                accumulated_parameters(units, layout, self.base.stack),
                self._of_shards[key],
                self._traffic[wired],
                oom_margin(layout),
                split_sigma(layout),
            )
        )
        return len(self.rows) - 1

    def _fullest(self, row: Row, layout: Layout) -> RankUnits:
        """Return what the fullest rank holds before its data dimension shards it."""
        key = row.split, row.pipeline
        if key not in self._units:
            self._units[key] = fullest_rank(self.cache, replace(self.base, layout=layout))
        return self._units[key]

    def layout(self, row: Row) -> Layout:
        """Return the layout of a row."""
        pipeline, virtual = self.pipelines[row.pipeline]
        shape = self.splits[row.split]._replace(pipeline=pipeline, virtual_stages=virtual)
        return shape.layout(row.data, shard=row.shard, zero_stage=row.zero_stage)

    @cached_property
    def facts(self) -> dict[str, np.ndarray]:
        """Arrays of all rows, by the names of `FACTS`."""
        table = np.array(self._facts, dtype=float).T
        return {
            name: column if name in REAL_FACTS else column.astype(int)
            for name, column in zip(FACTS, table, strict=True)
        }

    def traffic(self, rows: np.ndarray) -> tuple[TrafficRows, np.ndarray]:
        """Return the data dimensions of rows, and which of them each row of all has."""
        used = np.unique(self.facts["traffic"][rows])
        place = np.zeros(len(self._traffic_rows), dtype=int)
        place[used] = np.arange(len(used))
        return hybrid_rows([self._traffic_rows[i] for i in used.tolist()]), place


FACTS = (
    "split",
    "pipeline_index",
    "data",
    "zero_stage",
    "pipeline",
    "virtual_stages",
    "accelerators",
    "communicators",
    "stepped",
    "accumulated",
    "shards",
    "traffic",
    "oom_margin",
    "memory_sigma",
)
REAL_FACTS = frozenset({"stepped", "accumulated", "oom_margin", "memory_sigma"})
"""What is known of a row: indices into the lists of `SplitRows`, degrees, parameters of the fullest
rank that its optimizer steps and its micro-batches add gradients to, and how sure its memory is."""
