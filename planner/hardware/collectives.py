"""Time of collectives over the links that a group of ranks really uses.

Ring algorithms move V·(N-1)/N bytes per rank for an all-gather or reduce-scatter of V bytes in all,
twice that for an all-reduce (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). Over several
nodes the same bytes cross each node's network once; the slower of the two links sets the pace. A
ring's latency grows with its ranks; an all-reduce over many nodes runs as a tree instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...catalog.vocabulary import COLLECTIVES, Collective
from ...profiles.curves.device_curves import DeviceCurves
from ...profiles.curves.network import ring_latency_s, share_of_line, tree_latency_s
from ..constants import Constants
from .cluster import Site

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that talk: how many of one node, over how many nodes, beside how many like groups.

    A node is a domain of the fast link here: a whole NVL72 rack or TPU slice counts as one.
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


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The groups of many collectives, as `Group` describes one; arrays of equal length."""

    per_node: Array
    nodes: Array
    sharing: Array

    @classmethod
    def packed(cls, ranks: Array, domain: int, stride: Array) -> Groups:
        """Return groups of ranks `stride` apart that fill domains one after another."""
        inside = np.maximum(1, domain // stride)
        fits = ranks <= inside
        return cls(
            per_node=np.where(fits, ranks, inside),
            nodes=np.where(fits, 1, -(-ranks // inside)),
            sharing=np.where(fits, 1, np.minimum(stride, domain)),
        )

    @classmethod
    def of_replicas(cls, shard: Array, replicas: Array, domain: int, stride: Array) -> Groups:
        """Return the groups of equal shards: as far apart as the shard group is wide."""
        apart = shard * stride
        inside = np.maximum(1, domain // apart)
        return cls(
            per_node=np.minimum(inside, replicas),
            nodes=-(-replicas // inside),
            sharing=np.minimum(apart, domain),
        )


class CallTable:
    """Collectives laid out in arrays, made once for all sites that they are timed on."""

    def __init__(self, kinds: Sequence[Collective], total_bytes: Array, groups: Groups) -> None:
        self.total_bytes = np.asarray(total_bytes, dtype=float)
        codes = np.array([COLLECTIVES.index(kind) for kind in kinds], dtype=int)
        used = self.total_bytes > 0
        self.inside: dict[tuple[Collective, int], Array] = {}
        """Rows of the collectives that use the links inside a node, by kind and ranks of a node."""
        within = used & (groups.per_node > 1)
        for code, ranks in sorted(set(zip(codes[within], groups.per_node[within], strict=True))):
            rows = np.flatnonzero(within & (codes == code) & (groups.per_node == ranks))
            self.inside[COLLECTIVES[code], int(ranks)] = rows
        self.across_rows = np.flatnonzero(used & (groups.nodes > 1))
        self.across = (
            _Crossing(self.total_bytes, codes, groups, self.across_rows)
            if len(self.across_rows)
            else None
        )

    @classmethod
    def of(cls, calls: Sequence[CollectiveCall]) -> CallTable:
        """Return the table of these collectives."""
        groups = [call.group for call in calls]
        return cls(
            [call.kind for call in calls],
            np.array([call.total_bytes for call in calls], dtype=float),
            Groups(
                per_node=np.array([group.per_node for group in groups], dtype=int),
                nodes=np.array([group.nodes for group in groups], dtype=int),
                sharing=np.array([group.sharing for group in groups], dtype=int),
            ),
        )


class _Crossing:
    """What collectives send over the network between nodes."""

    def __init__(self, total_bytes: Array, codes: Array, groups: Groups, rows: Array) -> None:
        size, codes = total_bytes[rows], codes[rows]
        self.sharing, self.per_node = groups.sharing[rows], groups.per_node[rows]
        self.nodes = groups.nodes[rows]
        ranks = self.per_node * self.nodes
        self.has_trees = codes == COLLECTIVES.index("all_reduce")
        self.passes = np.where(self.has_trees, 2, 1)
        # In a ring a buffer leaves a node once; in an all-to-all what each rank has for others.
        apart = codes == COLLECTIVES.index("all_to_all")
        size = size * np.where(apart, self.per_node, 1)
        leaving = np.where(apart, (self.nodes - 1) / self.nodes, (ranks - 1) / ranks)
        self.sent_bytes = self.passes * size * leaving

    def seconds(self, links: Links, *, alone: bool) -> tuple[Array, Array]:
        """Return (transfer, latency) seconds on the network of a site."""
        line_rate = links.site.domain_bytes_per_s
        assert line_rate is not None, "several nodes are asked for only where the fabric is known"
        fabric = links.site.fabric
        rate = line_rate * share_of_line(fabric, under_compute=not alone)
        transfer = self.sent_bytes * self.sharing / rate
        if not alone:
            transfer = transfer * links.constants["network"]
        ring = ring_latency_s(self.nodes, self.per_node, fabric=fabric)
        tree = tree_latency_s(self.nodes, self.per_node, fabric=fabric)
        # NCCL has trees for the all-reduce alone, and takes the faster way.
        latency = np.where(self.has_trees, np.minimum(ring, tree), ring)
        return transfer, self.passes * latency


def collective_s(calls: CallTable, links: Links, *, alone: bool = False) -> Array:
    """Return the seconds of each collective.

    Args:
        calls: the collectives.
        links: what they run over.
        alone: whether the device waits for them, so that no kernels take bandwidth meanwhile.
    """
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
        crossing, latency = calls.across.seconds(links, alone=alone)
        rows = calls.across_rows
        seconds[rows] = np.maximum(seconds[rows], crossing) + latency
    return seconds
