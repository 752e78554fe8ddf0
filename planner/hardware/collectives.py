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


class CallTable:
    """Collectives laid out in arrays, made once for all sites that they are timed on."""

    def __init__(self, calls: Sequence[CollectiveCall]) -> None:
        self.total_bytes = np.array([call.total_bytes for call in calls], dtype=float)
        rows = [row for row, call in enumerate(calls) if call.total_bytes > 0]
        inside: dict[tuple[Collective, int], list[int]] = {}
        for row in rows:
            if calls[row].group.per_node > 1:
                inside.setdefault((calls[row].kind, calls[row].group.per_node), []).append(row)
        self.inside = {key: np.array(found) for key, found in inside.items()}
        """Rows of the collectives that use the links inside a node, by kind and ranks of a node."""
        across = [row for row in rows if calls[row].group.nodes > 1]
        self.across = _Crossing([calls[row] for row in across]) if across else None
        self.across_rows = np.array(across, dtype=int)


class _Crossing:
    """What collectives send over the network between nodes."""

    def __init__(self, calls: Sequence[CollectiveCall]) -> None:
        size = np.array([call.total_bytes for call in calls], dtype=float)
        ranks = np.array([call.group.ranks for call in calls])
        self.sharing = np.array([call.group.sharing for call in calls])
        self.passes = np.array([2 if call.kind == "all_reduce" else 1 for call in calls])
        self.per_node = np.array([call.group.per_node for call in calls])
        self.nodes = np.array([call.group.nodes for call in calls])
        # In a ring a buffer leaves a node once; in an all-to-all every rank's own does.
        apart = np.array([call.kind == "all_to_all" for call in calls])
        size = size * np.where(apart, self.per_node, 1)
        self.node_bytes = size * self.sharing
        """What all groups of a node send: side by side they fill its network sooner."""
        self.sent_bytes = self.passes * size * (ranks - 1) / ranks

    def seconds(self, links: Links) -> tuple[Array, Array]:
        """Return (transfer, latency) seconds on the network of a site."""
        line_rate = links.site.domain_bytes_per_s
        assert line_rate is not None, "several nodes are asked for only where the fabric is known"
        rdma = links.site.inter_link.rdma
        together = internode_rate_bytes_per_s(
            self.node_bytes, line_rate_bytes_per_s=line_rate, rdma=rdma
        )
        transfer = self.sent_bytes / (together / self.sharing) * links.constants["network"]
        latency = internode_latency_s(self.nodes, self.per_node, rdma=rdma)
        return transfer, self.passes * latency


def collective_s(calls: CallTable, links: Links) -> Array:
    """Return the seconds of each collective."""
    seconds = np.zeros(len(calls.total_bytes))
    for (kind, ranks), rows in calls.inside.items():
        inside_s = links.curves.collective_s(
            kind,
            calls.total_bytes[rows],
            ranks,
            link_bytes_per_s=links.site.intra_link.bytes_per_s,
        )
        seconds[rows] = inside_s * links.constants["fast_link"]
    if calls.across is not None:
        crossing, latency = calls.across.seconds(links)
        rows = calls.across_rows
        seconds[rows] = np.maximum(seconds[rows], crossing) + latency
    return seconds
