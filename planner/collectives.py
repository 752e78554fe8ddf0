"""Time of a collective over the links that a group of ranks really uses.

Ring algorithms move V·(N-1)/N bytes per rank for an all-gather or reduce-scatter of V bytes in all,
twice that for an all-reduce (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). Over several
nodes the same bytes cross each node's network once; the slower of the two links sets the pace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..profiles.curves import DeviceCurves
from ..profiles.network import internode_latency_s, internode_rate_bytes_per_s
from .layout import Layout
from .site import Site

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that talk: how many of one node, over how many nodes, beside how many like groups."""

    per_node: int
    nodes: int
    sharing: int = 1
    """Groups of a node that use its network at the same time."""

    @property
    def ranks(self) -> int:
        """Ranks in the group."""
        return self.per_node * self.nodes

    @classmethod
    def of_data(cls, layout: Layout, site: Site) -> Group:
        """Return the group of all data-parallel ranks (the only dimension in use)."""
        return cls.packed(layout.data, site)

    @classmethod
    def of_shard(cls, layout: Layout, site: Site) -> Group:
        """Return the group that shares one copy of the state: neighbours first."""
        return cls.packed(layout.shard, site)

    @classmethod
    def of_replicas(cls, layout: Layout, site: Site) -> Group:
        """Return the group of equal shards: as far apart as the shard group is wide."""
        inside = max(1, site.per_node // layout.shard)
        nodes = max(1, layout.replicas // inside)
        return cls(
            per_node=min(inside, layout.replicas),
            nodes=nodes,
            sharing=min(layout.shard, site.per_node),
        )

    @classmethod
    def packed(cls, ranks: int, site: Site) -> Group:
        """Return a group of neighbouring ranks that fills nodes one after another."""
        if ranks <= site.per_node:
            return cls(per_node=ranks, nodes=1, sharing=1)
        return cls(per_node=site.per_node, nodes=-(-ranks // site.per_node))


def collective_s(
    kind: Collective, total_bytes: float, group: Group, site: Site, curves: DeviceCurves
) -> float:
    """Return seconds of one collective.

    Args:
        kind: which one.
        total_bytes: the whole buffer (gathered output, or input of a reduction).
        group: ranks and how they are placed.
        site: links.
        curves: measured rates inside a node.
    """
    if group.ranks == 1 or total_bytes <= 0:
        return 0.0
    inside = 0.0
    if group.per_node > 1:
        inside = float(
            curves.collective_s(
                kind,
                total_bytes,
                group.per_node,
                link_bytes_per_s=site.intra_link.bytes_per_s,
            )
        )
    if group.nodes == 1:
        return inside
    rate = site.inter_link.bytes_per_s
    assert rate is not None, "the search asks for several nodes only where the fabric is known"
    passes = 2 if kind == "all_reduce" else 1
    crossing = passes * total_bytes * (group.ranks - 1) / group.ranks
    achieved = internode_rate_bytes_per_s(
        total_bytes, line_rate_bytes_per_s=rate / group.sharing, rdma=site.inter_link.rdma
    )
    latency = passes * internode_latency_s(group.nodes, group.per_node, rdma=site.inter_link.rdma)
    return max(inside, float(crossing / achieved)) + latency
