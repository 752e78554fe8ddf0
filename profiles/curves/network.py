"""What the network between nodes really delivers: achieved rate by message size, and latency.

    rate = share of the line rate · line rate / (1 + √(half-peak size / message size))

Constants, their sources and the measured series behind them: `data/curves/_network.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .files import Array, shared_table

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def internode_rate_bytes_per_s(
    total_bytes: ArrayLike,
    *,
    line_rate_bytes_per_s: float,
    rdma: bool | None = True,
    under_compute: bool = True,
) -> Array:
    """Return the achieved bytes/s that cross one node's network during a ring collective.

    Args:
        total_bytes: Whole buffer of the collective.
        line_rate_bytes_per_s: The node's network (its share, where groups of ranks compete).
        rdma: Whether the fabric has RDMA; None (not stated) counts as yes.
        under_compute: True for traffic beside the kernels of a training step, which is what
            published steps show; False for an otherwise idle machine, as in nccl-tests.
    """
    facts = _facts(rdma)
    share = facts["share_of_line_under_compute" if under_compute else "share_of_line_idle"]
    size_bytes = np.maximum(np.asarray(total_bytes, dtype=float), 1.0)
    return share * line_rate_bytes_per_s / (1 + np.sqrt(facts["half_peak_at_bytes"] / size_bytes))


def internode_latency_s(
    nodes: ArrayLike, ranks_per_node: ArrayLike, *, rdma: bool | None = True
) -> Array:
    """Return the seconds a ring over several nodes takes for no bytes, once round."""
    per_rank_s = _facts(rdma)["latency_per_rank_us"] * 1e-6
    return per_rank_s * np.asarray(nodes) * np.asarray(ranks_per_node)


def tree_latency_s(
    nodes: ArrayLike, ranks_per_node: ArrayLike, *, rdma: bool | None = True
) -> Array:
    """Return the seconds a tree over several nodes takes for no bytes, once up or down.

    The ranks of a node form a chain, the nodes a binary tree (NCCL's double trees): what a ring
    takes in proportion to the nodes, a tree takes to their logarithm.
    """
    facts = _facts(rdma)
    hops = np.ceil(np.log2(np.maximum(nodes, 1)))
    chain_s = facts["latency_per_rank_us"] * 1e-6 * np.asarray(ranks_per_node)
    return chain_s + facts["tree_latency_per_hop_us"] * 1e-6 * hops


def _facts(rdma: bool | None) -> dict:
    return shared_table("_network")["classes"]["tcp" if rdma is False else "rdma"]
