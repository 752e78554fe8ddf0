"""Nodes and links of a recorded run, where its source leaves them open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from ...catalog.tpu_slices import LARGEST_SLICE_CHIPS
from ...catalog.types import Accelerator, Instance, Link
from ...catalog.units import GIGABIT_BYTES
from ...profiles.records import RunRecord
from ..hardware.bridges import link_of_node

TYPICAL_PER_NODE = 8
TYPICAL_PORT_GBIT_S = 100
"""Where a fabric is neither stated nor known from instances of the device."""
T = TypeVar("T")


def nodes_of(
    record: RunRecord, accelerator: Accelerator, peers: tuple[Instance, ...], assumed: list[str]
) -> tuple[int, int]:
    """Return (accelerators of one fast-link domain, number of domains)."""
    total = record.accelerators
    per_node = record.per_node
    if per_node is None:
        per_node = _most_common(int(peer.accelerators) for peer in peers if peer.accelerators > 1)
        per_node = per_node or TYPICAL_PER_NODE
        if total > 1:
            assumed.append(f"per_node={per_node} ({_most_of(peers)})")
    # Equal nodes: 12 accelerators on nodes of 8 are planned as 2 x 6.
    per_node = next(size for size in range(min(per_node, total), 0, -1) if total % size == 0)
    return per_node, total // per_node


def link_domain(accelerator: Accelerator, per_node: int, nodes: int) -> int | None:
    """Return how many chips of several hosts one torus joins; None for devices without one."""
    torus = LARGEST_SLICE_CHIPS.get(accelerator.name)
    if torus is None or nodes == 1:
        return None
    total = per_node * nodes
    return next(size for size in range(min(torus, total), 0, -1) if total % size == 0)


def intra_link(
    accelerator: Accelerator, peers: tuple[Instance, ...], per_node: int, assumed: list[str]
) -> Link:
    """Return what ranks of a node talk over: the usual link of the device in these instances."""
    if accelerator.link_bytes_per_s is not None or per_node == 1:
        own = Link(name=accelerator.link, bytes_per_s=accelerator.link_bytes_per_s)
        return link_of_node(own, accelerator, per_node)
    known = [peer.intra_link for peer in peers if peer.intra_link.bytes_per_s]
    if not known:
        return Link(name=accelerator.link, bytes_per_s=None)
    link = _most_common(known)
    assert link is not None
    assumed.append(f"intra-node link={link.name} ({_most_of(peers)})")
    return link_of_node(link, accelerator, per_node)


def inter_link(
    record: RunRecord,
    peers: tuple[Instance, ...],
    per_node: int,
    nodes: int,
    assumed: list[str],
) -> Link:
    """Return what nodes talk over: as stated, else as in instances of the device."""
    if record.inter_node_gbit_s is not None:
        return Link(name=None, bytes_per_s=record.inter_node_gbit_s * GIGABIT_BYTES, rdma=True)
    if nodes == 1:
        return Link(name=None, bytes_per_s=None)
    rates = [peer.inter_link.bytes_per_s for peer in peers if peer.accelerators > 1]
    rate = _most_common(rate for rate in rates if rate is not None)
    why = _most_of(peers)
    if rate is None:
        rate, why = TYPICAL_PORT_GBIT_S * GIGABIT_BYTES * per_node, "one port an accelerator"
    assumed.append(f"inter_node_gbit_s={rate / GIGABIT_BYTES:g} ({why})")
    return Link(name=None, bytes_per_s=rate, rdma=True)


def _most_of(peers: tuple[Instance, ...]) -> str:
    return f"most instances of {', '.join(sorted({peer.accelerator for peer in peers}))}"


def _most_common(values: Iterable[T]) -> T | None:
    """Return the value that comes most often, the first of equals; None if there is none."""
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else None
