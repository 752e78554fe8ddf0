"""Which layouts a model and a machine allow: every degree by its own rule, data by what is left.

A *shape* is how the model itself is split: tensor, context, expert and pipeline degrees, virtual
stages. The data degree is what remains of the ranks, and says which ways of sharding there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from ...profiles.profile import StepTrace
from ..plan.errors import UnsupportedError
from ..plan.layout import Layout
from .column_row_parallel import is_expert_product, parallel_styles
from .degrees import Split
from .pipeline_chunks import chunk_sizes
from .rank_trace import check_divisible

MOST_TENSOR = 8
"""Tensor ranks inside one node: more of them leave too little work in each (Narayanan et al. 2021,
arXiv:2104.04473, section 5.4)."""
MOST_TENSOR_OF_RACK = 16
"""The same where several nodes are one domain of the fast link (NVL72, slices of TPUs)."""
MOST_PIPELINE = 64
MOST_EXPERT = 64
TOKENS_PER_CONTEXT_RANK = 8192
"""Context parallelism is for long sequences: a rank keeps at least so many tokens of a sample."""


class Shape(NamedTuple):
    """How the model is split, apart from the data."""

    tensor: int = 1
    sequence_parallel: bool = False
    context: int = 1
    expert: int = 1
    pipeline: int = 1
    virtual_stages: int = 1

    @classmethod
    def of(cls, layout: Layout) -> Shape:
        """Return the shape of a layout."""
        return cls(**{name: getattr(layout, name) for name in cls._fields})

    @property
    def ranks(self) -> int:
        """How many ranks hold one copy of the model."""
        return self.tensor * self.context * self.pipeline

    def layout(self, data: int, *, shard: int = 1, zero_stage: int = 0) -> Layout:
        """Return the layout of this shape with that data dimension."""
        return Layout(data=data, shard=shard, zero_stage=zero_stage, **self._asdict())

    def smallest(self) -> Layout:
        """Return the layout with the fewest ranks: its data degree is 1 but for experts' sake."""
        return self.layout(self.expert // gcd(self.expert, self.tensor * self.context))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a model allows of each degree; the degrees themselves are in rising order."""

    layers: int
    """Blocks in a row, of which pipeline stages are made."""
    tensor: tuple[int, ...]
    context: tuple[int, ...]
    expert: tuple[int, ...]


def limits_of(trace: StepTrace, tokens_per_sample: float | None) -> Limits | None:
    """Return what a traced model allows; None where nothing but its data can be split.

    Args:
        trace: of one step.
        tokens_per_sample: None where samples have no tokens: then context is not split.
    """
    layers = sum(
        trace.segments[i].phase == "forward" and trace.segments[i].block is not None
        for i in trace.schedule
    )
    if layers < 2:
        return None
    powers = tuple(2**i for i in range(1, 8))
    experts = max(
        (
            int(kernel.dims["batch"].base)
            for segment in trace.segments
            for kernel in segment.kernels
            if is_expert_product(kernel)
        ),
        default=1,
    )
    longest = int((tokens_per_sample or 0) // TOKENS_PER_CONTEXT_RANK)
    styles = parallel_styles(trace, splits_head=True)

    def allowed(name: str, most: int) -> tuple[int, ...]:
        found = [1]
        for degree in powers:
            if degree > most:
                break
            try:
                check_divisible(trace, styles, Split(**{name: degree}, splits_vocabulary=True))
            except UnsupportedError:
                break
            found.append(degree)
        return tuple(found)

    return Limits(
        layers=layers,
        tensor=allowed("tensor", MOST_TENSOR_OF_RACK),
        context=allowed("context", longest),
        expert=allowed("expert", min(experts, MOST_EXPERT)),
    )


@lru_cache(maxsize=4096)
def legal_shapes(limits: Limits, ranks: int, per_node: int, domain: int) -> tuple[Shape, ...]:
    """Return the shapes that split a model over so many ranks; data parallelism alone is none.

    Args:
        limits: what the model allows.
        ranks: accelerators in all.
        per_node: accelerators of one node.
        domain: accelerators that share the fast link, inside which tensor ranks stay.
    """
    found = []
    for tensor in limits.tensor:
        if not _is_inside(tensor, per_node, domain) or ranks % tensor:
            continue
        for context in limits.context:
            if ranks % (tensor * context):
                continue
            rest = ranks // (tensor * context)
            for pipeline, virtual in pipelines(limits.layers, rest):
                for expert in limits.expert:
                    if (ranks // pipeline) % expert:
                        continue
                    for sequence_parallel in (True, False) if tensor > 1 else (False,):
                        found.append(
                            Shape(tensor, sequence_parallel, context, expert, pipeline, virtual)
                        )
    return tuple(shape for shape in found if shape != Shape())


def _is_inside(tensor: int, per_node: int, domain: int) -> bool:
    """Return whether tensor ranks fill domains of the fast link without one lying across two."""
    if domain > per_node:
        return tensor <= min(domain, MOST_TENSOR_OF_RACK)
    return tensor <= MOST_TENSOR and domain % tensor == 0


@lru_cache(maxsize=1024)
def pipelines(layers: int, ranks: int) -> tuple[tuple[int, int], ...]:
    """Return (pipeline, virtual stages) that deal these layers to at most so many ranks.

    Stages are equal, or would be with embedding and head counted as layers, or their number is a
    power of two (then some have one layer more). Virtual stages divide the stages in the same way.
    """
    found = [(1, 1)]
    for pipeline in range(2, min(layers + 2, ranks, MOST_PIPELINE) + 1):
        if ranks % pipeline or not _deals(layers, pipeline):
            continue
        most = (layers + 2) // pipeline
        deals = _is_even if _is_even(layers, pipeline) else _deals
        found += [
            (pipeline, virtual)
            for virtual in range(1, most + 1)
            if deals(layers, pipeline * virtual)
        ]
    return tuple(found)


def _is_even(layers: int, chunks: int) -> bool:
    return layers % chunks == 0 or (layers + 2) % chunks == 0


def _deals(layers: int, chunks: int) -> bool:
    """Return whether a pipeline of so many chunks is worth a try."""
    if not _is_even(layers, chunks) and chunks & (chunks - 1):
        return False
    try:
        return bool(chunk_sizes(layers, chunks))
    except UnsupportedError:
        return False


def legal_layouts(limits: Limits, *, nodes: int, per_node: int, domain: int) -> Iterator[Layout]:
    """Yield every layout that splits the model over these nodes.

    Args:
        limits: what the model allows (`limits_of`).
        nodes: how many.
        per_node: accelerators of one.
        domain: accelerators that share the fast link: those of a node, or of a rack (NVL72).
    """
    ranks = nodes * per_node
    for shape in legal_shapes(limits, ranks, per_node, domain):
        data = ranks // shape.ranks
        for zero_stage, shard in shardings(data, shape.context, domain // shape.tensor):
            yield shape.layout(data, shard=shard, zero_stage=zero_stage)


def shardings(data: int, context: int, inside: int) -> list[tuple[int, int]]:
    """Return (ZeRO stage, ranks that share one copy of the state) of a data dimension.

    Args:
        data: its degree.
        context: context ranks, which share the state as well.
        inside: ranks of the dimension on one domain of the fast link: with HSDP they share a copy.
    """
    ranks = data * context
    if ranks == 1:
        return [(0, 1)]
    found = [(0, 1), (1, ranks), (2, ranks), (3, ranks)]
    if 1 < inside < data and data % inside == 0:
        found.append((3, inside))
    return found
