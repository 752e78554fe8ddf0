"""The network between nodes: its laws, and nccl-tests points that it must reproduce."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.profiles.curves.files import shared_table
from gpuplan.profiles.curves.network import (
    internode_latency_s,
    internode_rate_bytes_per_s,
    tree_latency_s,
)

LINE = 400e9


def ring_s(
    kind: str,
    bytes_total: float,
    *,
    ranks_per_node: int,
    nodes: int,
    line_rate_bytes_per_s: float,
    rdma: bool | None = True,
    under_compute: bool = True,
) -> float:
    """Return the seconds of a ring over several nodes, bound by the network between them."""
    ranks = ranks_per_node * nodes
    rate = internode_rate_bytes_per_s(
        bytes_total,
        line_rate_bytes_per_s=line_rate_bytes_per_s,
        rdma=rdma,
        under_compute=under_compute,
    )
    latency_s = internode_latency_s(nodes, ranks_per_node, rdma=rdma)
    passes = 2 if kind == "all_reduce" else 1
    return float(passes * (bytes_total * (ranks - 1) / ranks / rate + latency_s))


@given(size=st.floats(1, 1e12), more=st.floats(1, 1000), rdma=st.sampled_from([True, False, None]))
@settings(max_examples=100, deadline=None)
def test_larger_messages_are_carried_faster_and_never_above_the_line(size, more, rdma):
    rate = internode_rate_bytes_per_s(size, line_rate_bytes_per_s=LINE, rdma=rdma)
    larger = internode_rate_bytes_per_s(size * more, line_rate_bytes_per_s=LINE, rdma=rdma)
    assert 0 < rate <= larger < LINE


@given(size=st.floats(1e3, 1e11), nodes=st.integers(2, 64), factor=st.floats(1, 10))
@settings(max_examples=100, deadline=None)
def test_a_faster_network_is_never_slower(size, nodes, factor):
    slow, fast = (
        ring_s("all_gather", size, ranks_per_node=8, nodes=nodes, line_rate_bytes_per_s=rate)
        for rate in (LINE, LINE * factor)
    )
    assert fast <= slow


def test_an_all_reduce_is_two_passes():
    facts = {"ranks_per_node": 8, "nodes": 4, "line_rate_bytes_per_s": LINE}
    gather = ring_s("all_gather", 1e9, **facts)
    assert ring_s("all_reduce", 1e9, **facts) == pytest.approx(2 * gather)
    assert internode_latency_s(4, 8) == pytest.approx(32 * internode_latency_s(1, 1))


def test_no_rdma_is_slower():
    with_rdma, without = (
        ring_s("all_gather", 1e8, ranks_per_node=8, nodes=2, line_rate_bytes_per_s=LINE, rdma=r)
        for r in (True, False)
    )
    assert without > 1.5 * with_rdma


@pytest.mark.parametrize(
    ("kind", "nodes", "line", "rdma", "size_bytes", "bus_bytes_per_s"),
    [
        # OCI BM.GPU.MI300X.8, RoCE 8 x 400 Gbit/s
        ("all_reduce", 2, 400e9, True, 1073741824, 349.95e9),
        ("all_reduce", 2, 400e9, True, 17179869184, 358.37e9),
        # OCI BM.GPU.B4.8, RoCE 16 x 100 Gbit/s
        ("all_reduce", 2, 200e9, True, 1073741824, 184.92e9),
        # AWS p6-b200.48xlarge, EFA 8 x 400 Gbit/s
        ("all_reduce", 4, 400e9, True, 1073741824, 361.99e9),
        ("all_reduce", 4, 400e9, True, 134217728, 197.94e9),
        # GCP a3-highgpu-8g, GPUDirect-TCPX 1 Tbit/s
        ("all_gather", 2, 125e9, False, 1073741824, 49.27e9),
    ],
)
def test_idle_ring_reproduces_nccl_tests(kind, nodes, line, rdma, size_bytes, bus_bytes_per_s):
    time = ring_s(
        kind,
        size_bytes,
        ranks_per_node=8,
        nodes=nodes,
        line_rate_bytes_per_s=line,
        rdma=rdma,
        under_compute=False,
    )
    passes = 2 if kind == "all_reduce" else 1
    ranks = 8 * nodes
    predicted = passes * size_bytes * (ranks - 1) / ranks / time
    assert predicted == pytest.approx(bus_bytes_per_s, rel=0.25)


def test_the_constants_agree_with_the_fitted_series():
    table = shared_table("_network")
    rdma = [s for s in table["series"] if "TCPX" not in s["network"] and s["relative_error"] < 0.15]
    halves = sorted(s["half_peak_at_bytes"] for s in rdma if s["ranks"] <= 32)
    assert halves[0] <= table["classes"]["rdma"]["half_peak_at_bytes"] <= halves[-1]
    per_rank = sorted(s["latency_us"] / s["ranks"] / 2 for s in rdma if s["ranks"] <= 32)
    assert per_rank[0] <= table["classes"]["rdma"]["latency_per_rank_us"] <= per_rank[-1]


@given(nodes=st.integers(1, 4096), rdma=st.sampled_from([True, False, None]))
@settings(max_examples=50, deadline=None)
def test_a_tree_s_latency_grows_with_the_logarithm_of_the_nodes(nodes, rdma):
    tree = float(tree_latency_s(nodes, 8, rdma=rdma))
    twice = float(tree_latency_s(2 * nodes, 8, rdma=rdma))
    hop = float(tree_latency_s(2, 8, rdma=rdma)) - float(tree_latency_s(1, 8, rdma=rdma))
    assert twice - tree == pytest.approx(hop)


def test_two_nodes_take_as_long_by_tree_as_by_ring_and_many_a_tenth():
    def ratio(nodes: int) -> float:
        tree, ring = (f(nodes, 8, rdma=True) for f in (tree_latency_s, internode_latency_s))
        return float(tree / ring)

    assert 0.9 < ratio(2) < 1.1
    assert ratio(128) < 0.1
