"""What the network between nodes really delivers: a share of its line rate, after a latency.

    time of a ring = latency per rank · ranks + bytes on the wire / (share of line · line rate)

The same two numbers fit all-gathers of 32 MB to 2 GB on 16 to 256 accelerators within a fifth:
small messages are slow because of the latency, which grows with the ranks. Constants, their sources
and the measured series behind them: `data/curves/_network.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from .files import Array, shared_table

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Fabric = Literal["rdma", "efa", "tcp"]
"""InfiniBand, RoCE and their like; Amazon's; and networks that pass through the host."""
_BETWEEN_SLICES = "DCN"
_OFFLOADED = "GPUDirect-TCPXO"


def fabric_of(name: str | None, rdma: bool | None) -> Fabric:
    """Return the kind of network between nodes; one of which nothing is stated counts as RDMA.

    So does GPUDirect-TCPXO, whose NICs move what a GPU sends without its host: all-gathers between
    A3 Mega reach 183 to 186 of its 200 GB/s, those between A3 High, through the host, 54 to 58 (the
    series of `_network.json`). So does the network between slices of a TPU, through the hosts
    though it goes: no chain of ranks passes a message on there, and the published runs of 2 to 32
    slices are priced so.
    """
    if rdma is False and not (name or "").startswith((_BETWEEN_SLICES, _OFFLOADED)):
        return "tcp"
    return "efa" if name is not None and name.startswith("EFA") else "rdma"


def share_of_line(fabric: Fabric, *, under_compute: bool) -> float:
    """Return the share of the line rate that collectives reach.

    Args:
        fabric: the kind of network.
        under_compute: True for traffic beside the kernels of a training step, which is what
            published steps show; False for an otherwise idle machine, as in nccl-tests.
    """
    return _facts(fabric)["share_of_line_under_compute" if under_compute else "share_of_line_idle"]


def ring_latency_s(nodes: ArrayLike, ranks_per_node: ArrayLike, *, fabric: Fabric) -> Array:
    """Return the seconds a ring over several nodes takes for no bytes, once round."""
    per_rank_s = _facts(fabric)["latency_per_rank_us"] * 1e-6
    return per_rank_s * np.asarray(nodes) * np.asarray(ranks_per_node)


def tree_latency_s(nodes: ArrayLike, ranks_per_node: ArrayLike, *, fabric: Fabric) -> Array:
    """Return the seconds a tree over several nodes takes for no bytes, once up or down.

    The ranks of a node form a chain, the nodes a binary tree (NCCL's double trees): what a ring
    takes in proportion to the nodes, a tree takes to their logarithm.
    """
    facts = _facts(fabric)
    hops = np.ceil(np.log2(np.maximum(nodes, 1)))
    chain_s = facts["chain_latency_per_rank_us"] * 1e-6 * np.asarray(ranks_per_node)
    return chain_s + facts["tree_latency_per_hop_us"] * 1e-6 * hops


def _facts(fabric: Fabric) -> dict:
    return shared_table("_network")["classes"][fabric]
