"""Time of collectives over the links that a group of ranks really uses.

Ring algorithms move V·(N-1)/N bytes per rank for an all-gather or reduce-scatter of V bytes in all,
twice that for an all-reduce (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). Over several
nodes the same bytes cross each node's network once; the slower of the two links sets the pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...catalog.vocabulary import Collective
from ...profiles.curves.device_curves import DeviceCurves
from ...profiles.curves.network import internode_latency_s, internode_rate_bytes_per_s
from ..constants import Constants
from ..plan.layout import Layout
from .cluster import Site

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that talk: how many of one node, over how many nodes, beside how many like groups.

    A node is a domain of the fast link here: a whole NVL72 rack counts as one.
    """

    per_node: int
    nodes: int
    sharing: int = 1
    """Groups of a node that use its network at the same time."""

    @property
    def ranks(self) -> int:
        """Ranks in the group."""
        return self.per_node * self.nodes

    @classmethod
    def packed(cls, ranks: int, per_node: int, *, stride: int = 1) -> Group:
        """Return a group of ranks `stride` apart that fills nodes one after another."""
        inside = max(1, per_node // stride)
        if ranks <= inside:
            return cls(per_node=ranks, nodes=1)
        return cls(per_node=inside, nodes=-(-ranks // inside), sharing=min(stride, per_node))

    @classmethod
    def of_replicas(cls, layout: Layout, per_node: int, *, stride: int = 1) -> Group:
        """Return the group of equal shards: as far apart as the shard group is wide."""
        apart = layout.shard * stride
        inside = max(1, per_node // apart)
        return cls(
            per_node=min(inside, layout.replicas),
            nodes=max(1, layout.replicas // inside),
            sharing=min(apart, per_node),
        )


@dataclass(frozen=True, kw_only=True)
class Links:
    """What the ranks of a job talk over, and how well software uses it."""

    site: Site
    """Its node count is not looked at."""
    curves: DeviceCurves
    """With the collectives measured inside a node."""
    constants: Constants
    """How links and overlap in a step differ from what is measured alone."""


@dataclass(frozen=True, kw_only=True)
class CollectiveCall:
    """One collective to be timed: its whole buffer is `total_bytes`."""

    kind: Collective
    total_bytes: float
    group: Group


def collective_s(asks: Sequence[CollectiveCall], links: Links) -> Array:
    """Return the seconds of each collective."""
    seconds = np.zeros(len(asks))
    inside: dict[tuple[Collective, int], list[int]] = {}
    across: list[int] = []
    for i, ask in enumerate(asks):
        if ask.total_bytes <= 0:
            continue
        if ask.group.per_node > 1:
            inside.setdefault((ask.kind, ask.group.per_node), []).append(i)
        if ask.group.nodes > 1:
            across.append(i)
    for (kind, ranks), rows in inside.items():
        seconds[rows] = (
            links.curves.collective_s(
                kind,
                np.array([asks[i].total_bytes for i in rows]),
                ranks,
                link_bytes_per_s=links.site.intra_link.bytes_per_s,
            )
            * links.constants["fast_link"]
        )
    if across:
        crossing, latency = _across_nodes_s([asks[i] for i in across], links)
        seconds[across] = np.maximum(seconds[across], crossing) + latency
    return seconds


def _across_nodes_s(asks: Sequence[CollectiveCall], links: Links) -> tuple[Array, Array]:
    """Return (transfer, latency) seconds of collectives that cross the network."""
    site = links.site
    line_rate = site.domain_bytes_per_s
    assert line_rate is not None, "several nodes are asked for only where the fabric is known"
    rdma = site.inter_link.rdma
    size = np.array([ask.total_bytes for ask in asks], dtype=float)
    ranks = np.array([ask.group.ranks for ask in asks])
    sharing = np.array([ask.group.sharing for ask in asks])
    passes = np.array([2 if ask.kind == "all_reduce" else 1 for ask in asks])
    # In a ring a buffer leaves a node once; in an all-to-all every rank's own does.
    apart = np.array([ask.kind == "all_to_all" for ask in asks])
    size = size * np.where(apart, [ask.group.per_node for ask in asks], 1)
    # Groups that share a node's network send side by side: together they fill it sooner.
    rate = (
        internode_rate_bytes_per_s(size * sharing, line_rate_bytes_per_s=line_rate, rdma=rdma)
        / sharing
    )
    latency = np.array(
        [internode_latency_s(ask.group.nodes, ask.group.per_node, rdma=rdma) for ask in asks]
    )
    transfer = passes * size * (ranks - 1) / ranks / rate * links.constants["network"]
    return transfer, passes * latency
