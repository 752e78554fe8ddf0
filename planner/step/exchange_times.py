"""What ranks exchange inside a micro-batch: tensor, context and expert collectives, in seconds.

Ranks are numbered tensor first, then context, data and pipeline (`model_parallel_step.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..hardware.cluster import Site
from ..hardware.collectives import CallTable, CollectiveCall, Group, Links, collective_s
from ..parallelism.rank_trace import Exchange, SplitTrace
from ..plan.layout import Layout
from .expert_exchange import distinct_share

Array = np.ndarray


def exchange_s(
    split: SplitTrace,
    layout: Layout,
    links: Links,
    micro_batches: Array,
    *,
    sends_once: bool,
    expert_tensor: int = 1,
) -> dict[str, Array]:
    """Return [segments, B] seconds of each dimension's collectives, were nothing overlapped."""
    seconds = {
        among: np.zeros((len(split.exchanges), len(micro_batches)))
        for among in ("tensor", "context", "expert", "expert_tensor")
    }
    degrees = (layout.tensor, layout.context, layout.expert, expert_tensor)
    sizes = tuple(float(size) for size in micro_batches)
    table = _exchange_table(split, degrees, links.site.domain, sizes, sends_once)
    if table is not None:
        # Tensor ranks stand still for theirs. Experts' kernels of their own reach 0.83 to 0.9 of
        # the line (DeepEP on 2 and 4 nodes of H100); the rings of the others run beside kernels.
        taken = {
            alone: collective_s(table.calls, links, alone=alone)
            for alone in {among != "context" for among in table.among}
        }
        for among, (rows, places) in table.among.items():
            np.add.at(seconds[among], places, (table.count * taken[among != "context"])[rows])
    return seconds


@dataclass(frozen=True, kw_only=True, eq=False)
class _ExchangeTable:
    """The exchanges of a rank's share at every micro-batch, which many sites share."""

    calls: CallTable
    count: Array
    among: dict[str, tuple[Array, tuple[Array, Array]]]
    """By dimension: which calls, and their (segment, micro-batch)."""


@lru_cache(maxsize=4096)
def _exchange_table(
    split: SplitTrace,
    degrees: tuple[int, int, int, int],
    domain: int,
    micro_batches: tuple[float, ...],
    sends_once: bool,
) -> _ExchangeTable | None:
    places: list[tuple[str, int, int]] = []
    counts: list[int] = []
    calls: list[CollectiveCall] = []
    for row, exchanges in enumerate(split.exchanges):
        for one in exchanges:
            for column, size in enumerate(micro_batches):
                calls.append(_call(one, degrees, domain, size, sends_once=sends_once))
                places.append((one.among, row, column))
                counts.append(one.count)
    if not calls:
        return None
    among = {}
    for name in {place[0] for place in places}:
        rows = [i for i, place in enumerate(places) if place[0] == name]
        at = np.array([places[i][1:] for i in rows]).T
        among[name] = np.array(rows), (at[0], at[1])
    return _ExchangeTable(calls=CallTable.of(calls), count=np.array(counts), among=among)


def _call(
    one: Exchange,
    degrees: tuple[int, int, int, int],
    domain: int,
    micro_batch: float,
    *,
    sends_once: bool,
) -> CollectiveCall:
    """Return an exchange as it is asked of the links."""
    group = _groups(degrees, domain)[one.among]
    size = one.total_bytes.at(micro_batch)
    if group.nodes > 1 and sends_once:
        size *= distinct_share(one.copies, group.nodes)
    return CollectiveCall(kind=one.kind, total_bytes=size, group=group)


def _groups(degrees: tuple[int, int, int, int], domain: int) -> dict[str, Group]:
    """Return the ranks that exchange, by dimension.

    Experts lie on neighbouring ranks, each whole or split over that many of them.
    """
    tensor, context, expert, expert_tensor = degrees
    return {
        "tensor": Group.packed(tensor, domain),
        "context": Group.packed(context, domain, stride=tensor),
        "expert": Group.packed(expert, domain, stride=expert_tensor),
        "expert_tensor": Group.packed(expert_tensor, domain),
    }


def links_used(layout: Layout, site: Site) -> tuple[object, ...]:
    """Return what of a site's links the exchanges of a rank's kernels run over."""
    groups = _groups((layout.tensor, layout.context, layout.expert, 1), site.domain).values()
    if all(group.ranks == 1 for group in groups):
        return ()
    inside = site.domain, site.intra_link.bytes_per_s
    if all(group.nodes == 1 for group in groups):
        return inside
    return *inside, site.domain_bytes_per_s, site.fabric
