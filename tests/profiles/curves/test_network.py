"""The network between nodes: its laws, and nccl-tests points that it must reproduce."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.profiles.curves.files import shared_table
from gpuplan.profiles.curves.network import (
    Fabric,
    fabric_of,
    ring_latency_s,
    share_of_line,
    tree_latency_s,
)

LINE = 400e9
FABRICS = st.sampled_from(["rdma", "efa", "tcp"])


def ring_s(
    kind: str,
    bytes_total: float,
    *,
    ranks_per_node: int,
    nodes: int,
    line_rate_bytes_per_s: float,
    fabric: Fabric = "rdma",
    under_compute: bool = True,
) -> float:
    """Return the seconds of a collective over several nodes, bound by the network between them."""
    ranks = ranks_per_node * nodes
    rate = line_rate_bytes_per_s * share_of_line(fabric, under_compute=under_compute)
    latency_s = ring_latency_s(nodes, ranks_per_node, fabric=fabric)
    if kind == "all_reduce":
        latency_s = min(latency_s, tree_latency_s(nodes, ranks_per_node, fabric=fabric))
    passes = 2 if kind == "all_reduce" else 1
    return float(passes * (bytes_total * (ranks - 1) / ranks / rate + latency_s))


def test_a_network_is_known_by_its_name_and_whether_it_passes_the_host():
    assert fabric_of("EFA v2 + GPUDirect RDMA", True) == "efa"
    assert fabric_of("EFA (CPU staged)", False) == "tcp"
    assert fabric_of("GPUDirect-TCPX (8g only)", False) == "tcp"
    assert fabric_of("GPUDirect-TCPXO", False) == "rdma"
    assert fabric_of("InfiniBand NDR", True) == fabric_of(None, None) == "rdma"


@given(fabric=FABRICS, under_compute=st.booleans())
def test_no_message_is_carried_above_the_line(fabric, under_compute):
    assert 0 < share_of_line(fabric, under_compute=under_compute) < 1
    idle = share_of_line(fabric, under_compute=False)
    assert share_of_line(fabric, under_compute=True) < idle


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
    # A tree saves latency, not bytes.
    latency_s = ring_latency_s(4, 8, fabric="rdma") - tree_latency_s(4, 8, fabric="rdma")
    assert ring_s("all_reduce", 1e9, **facts) == pytest.approx(2 * (gather - float(latency_s)))
    ring, one = (ring_latency_s(nodes, n, fabric="rdma") for nodes, n in ((4, 8), (1, 1)))
    assert ring == pytest.approx(32 * one)


def test_no_rdma_is_slower():
    with_rdma, without = (
        ring_s("all_gather", 1e8, ranks_per_node=8, nodes=2, line_rate_bytes_per_s=LINE, fabric=f)
        for f in ("rdma", "tcp")
    )
    assert without > 1.5 * with_rdma


@pytest.mark.parametrize(
    ("kind", "nodes", "line", "fabric", "size_bytes", "bus_bytes_per_s"),
    [
        # OCI BM.GPU.MI300X.8, RoCE 8 x 400 Gbit/s
        ("all_reduce", 2, 400e9, "rdma", 1073741824, 349.95e9),
        ("all_reduce", 2, 400e9, "rdma", 17179869184, 358.37e9),
        # OCI BM.GPU.B4.8, RoCE 16 x 100 Gbit/s
        ("all_reduce", 2, 200e9, "rdma", 1073741824, 184.92e9),
        # AWS p6-b200.48xlarge, EFA 8 x 400 Gbit/s
        ("all_reduce", 4, 400e9, "efa", 1073741824, 361.99e9),
        ("all_reduce", 4, 400e9, "efa", 134217728, 197.94e9),
        # GCP a3-highgpu-8g, GPUDirect-TCPX 1 Tbit/s
        ("all_gather", 2, 125e9, "tcp", 1073741824, 49.27e9),
        # GCP a3-megagpu-8g, GPUDirect-TCPXO 8 x 200 Gbit/s (the peak of their tests)
        ("all_gather", 2, 200e9, "rdma", 8589934592, 183e9),
        # AWS p5.48xlarge, EFA 32 x 100 Gbit/s: 16 to 256 accelerators, small and large
        ("all_gather", 2, 400e9, "efa", 33554432, 131.3e9),
        ("all_gather", 8, 400e9, "efa", 33554432, 46.29e9),
        ("all_gather", 16, 400e9, "efa", 268435456, 144.05e9),
        ("all_gather", 32, 400e9, "efa", 33554432, 12.38e9),
        ("all_gather", 16, 400e9, "efa", 2147483648, 265.15e9),
    ],
)
def test_idle_ring_reproduces_nccl_tests(kind, nodes, line, fabric, size_bytes, bus_bytes_per_s):
    time = ring_s(
        kind,
        size_bytes,
        ranks_per_node=8,
        nodes=nodes,
        line_rate_bytes_per_s=line,
        fabric=fabric,
        under_compute=False,
    )
    passes = 2 if kind == "all_reduce" else 1
    ranks = 8 * nodes
    predicted = passes * size_bytes * (ranks - 1) / ranks / time
    assert predicted == pytest.approx(bus_bytes_per_s, rel=0.25)


def test_the_constants_agree_with_the_fitted_series():
    table = shared_table("_network")

    def per_rank(collective: str, of: Fabric) -> list[float]:
        return sorted(
            one["latency_us"] / one["ranks"]
            for one in table["series"]
            if one["collective"] == collective
            and one["relative_error"] < 0.15
            and ("EFA" in one["network"]) == (of == "efa")
            and ("TCPX" in one["network"] and "TCPXO" not in one["network"]) == (of == "tcp")
        )

    for fabric in ("efa", "tcp"):
        found = per_rank("all_gather", fabric)
        assert found[0] <= table["classes"][fabric]["latency_per_rank_us"] <= found[-1]
    # Rings of InfiniBand and RoCE are measured at 16 ranks only, beside trees of more.
    assert (
        3 <= table["classes"]["rdma"]["latency_per_rank_us"] <= per_rank("all_gather", "rdma")[-1]
    )


def test_an_all_reduce_s_latency_is_the_tree_s():
    """nccl-tests on p5.48xlarge over 2 to 32 nodes, 32 MB to 8 GB: fitted latencies."""
    for nodes, measured_s in ((2, 306e-6), (4, 475e-6), (8, 676e-6), (16, 855e-6), (32, 988e-6)):
        assert 2 * float(tree_latency_s(nodes, 8, fabric="efa")) == pytest.approx(
            measured_s, rel=0.15
        )


@given(nodes=st.integers(1, 4096), fabric=FABRICS)
@settings(max_examples=50, deadline=None)
def test_a_tree_s_latency_grows_with_the_logarithm_of_the_nodes(nodes, fabric):
    tree = float(tree_latency_s(nodes, 8, fabric=fabric))
    twice = float(tree_latency_s(2 * nodes, 8, fabric=fabric))
    hop = float(tree_latency_s(2, 8, fabric=fabric)) - float(tree_latency_s(1, 8, fabric=fabric))
    assert twice - tree == pytest.approx(hop)


def test_many_nodes_take_a_fraction_by_tree_of_what_they_take_by_ring():
    tree, ring = (f(128, 8, fabric="rdma") for f in (tree_latency_s, ring_latency_s))
    assert tree / ring < 0.1
