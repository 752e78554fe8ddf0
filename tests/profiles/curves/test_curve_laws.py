"""Laws that the curves of every device keep, whatever the sizes."""

import numpy as np
import pytest
from dtypes import multiplies_in
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.profiles.curves.device_curves import GEMM_DTYPES, DeviceCurves, curves_for
from gpuplan.profiles.curves.files import (
    embedded_curve_file,
    measured_accelerators,
)

EVERY_NAME = sorted(
    name for name, device in load_catalogue().accelerators.items() if device.peak_flops
)
WITH_GRIDS = tuple(n for n in measured_accelerators() if embedded_curve_file(n).gemm_grids)


size = st.integers(min_value=16, max_value=32768).map(lambda x: x // 8 * 8)


def curves(name: str) -> DeviceCurves:
    return curves_for(load_catalogue().accelerators[name])


@given(name=st.sampled_from(WITH_GRIDS), m=size, n=size, k=size, axis=st.integers(0, 2))
@settings(max_examples=150, deadline=None)
def test_no_product_is_slower_than_one_it_can_be_padded_to(name, m, n, k, axis):
    device, dims = curves(name), [m, n, k]
    dtype = next(iter(embedded_curve_file(name).gemm_grids))
    grid = embedded_curve_file(name).gemm_grids[dtype]
    axes = zip((grid.m, grid.n, grid.k), dims, strict=True)
    points = [float(nodes[np.abs(nodes - d).argmin()]) for nodes, d in axes]
    larger = [2 * d if i == axis else d for i, d in enumerate(points)]
    before, after = (float(device.gemm_s(*d, dtype=dtype)) for d in (points, larger))
    assert after >= before * 0.999


@given(name=st.sampled_from(WITH_GRIDS), m=size, n=size, k=size)
@settings(max_examples=150, deadline=None)
def test_gemm_is_never_faster_than_the_machine(name, m, n, k):
    device = curves(name)
    machine = device.machine("bf16")
    time = float(device.gemm_s(m, n, k, dtype="bf16"))
    size_bytes = 2 * (m * k + n * k + m * n)
    assert time >= 2 * m * n * k / machine.peak_flops * 0.999
    if size_bytes > 2 * machine.l2_bytes:
        assert time >= size_bytes / machine.bandwidth_bytes_per_s * 0.999


DERIVED_IN_FP32 = [
    name
    for name in EVERY_NAME
    if "tf32" in curves(name).device.peak_flops
    and curves(name).basis_of("gemm", "fp32") == "derived"
]


@pytest.mark.parametrize("name", DERIVED_IN_FP32)
@pytest.mark.parametrize("dims", [(512, 768, 768), (4096, 1024, 1024), (8192, 8192, 8192)])
def test_where_both_are_derived_fp32_is_not_faster_than_tf32(name, dims):
    device = curves(name)
    assert device.gemm_s(*dims, dtype="fp32") >= device.gemm_s(*dims, dtype="tf32") * 0.999


@pytest.mark.parametrize(
    ("name", "small", "axis"),
    [
        # These were faster four times as deep: 0.66, 0.72, 0.73 and 0.73 of the time.
        ("Inferentia1", (25936, 7128, 120), 2),
        ("TPU-v6e", (20608, 5176, 72), 2),
        ("Gaudi3", (20608, 5176, 72), 2),
        ("CPU-2x-Xeon-8488C", (20608, 5176, 72), 2),
    ],
)
def test_a_carried_product_is_not_slower_than_one_four_times_larger(name, small, axis):
    device = curves(name)
    larger = [4 * d if i == axis else d for i, d in enumerate(small)]
    dtype = next(d for d in ("bf16", "fp16", "fp32") if multiplies_in(device.device, d))
    assert device.gemm_s(*larger, dtype=dtype) >= 0.95 * device.gemm_s(*small, dtype=dtype)


@given(
    name=st.sampled_from(EVERY_NAME),
    m=size,
    n=size,
    k=size,
    axis=st.integers(0, 2),
    dtype=st.sampled_from(GEMM_DTYPES),
)
@settings(max_examples=300, deadline=None)
def test_four_times_the_work_is_never_faster(name, m, n, k, axis, dtype):
    device = curves(name)
    assume(multiplies_in(device.device, dtype))
    dims = [m, n, k]
    larger = [4 * d if i == axis else d for i, d in enumerate(dims)]
    before, after = (float(device.gemm_s(*d, dtype=dtype)) for d in (dims, larger))
    assert after >= 0.95 * before


SMALL_BATCHED = (16.0, 784.0, 1928.0, 58.0)
"""m, n, k, batch: 64 rows of each matrix took 0.83 to 0.85 of the time of 16."""


@pytest.mark.parametrize(
    ("name", "dtype"), [("P100-16GB-PCIe", "fp16"), ("CPU-2x-EPYC-9V33X", "bf16")]
)
def test_a_batched_product_is_not_slower_than_the_whole_tiles_it_is_padded_to(name, dtype):
    m, n, k, batch = SMALL_BATCHED
    device = curves(name)
    small, whole = (device.gemm_s(rows, n, k, batch=batch, dtype=dtype) for rows in (m, 4 * m))
    assert whole >= 0.99 * small


@given(
    name=st.sampled_from(EVERY_NAME),
    dims=st.tuples(size, size, size, st.integers(2, 2048)),
    axis=st.integers(0, 3),
    dtype=st.sampled_from(GEMM_DTYPES),
)
@settings(max_examples=300, deadline=None)
def test_four_times_the_batched_work_is_never_faster(name, dims, axis, dtype):
    device = curves(name)
    assume(multiplies_in(device.device, dtype))
    larger = [4 * d if i == axis else d for i, d in enumerate(dims)]
    before, after = (
        float(device.gemm_s(*sides, batch=batch, dtype=dtype)) for *sides, batch in (dims, larger)
    )
    # Of 20,000 draws on every device the worst is 0.93: the law is held where a batch is one
    # product, and its matrices have weights of their own. Ones of 2 µs lose up to 17 %.
    assert after >= 0.9 * before or before < 5e-6


@given(
    seq=st.integers(128, 100_000), heads=st.integers(1, 64), dim=st.sampled_from([32, 64, 80, 128])
)
@settings(max_examples=100, deadline=None)
def test_attention_laws(seq, heads, dim):
    device = curves("H100-80GB-SXM")

    def time(s, *, causal=True, backward=False, flops=None):
        return float(
            device.attention_s(
                2,
                heads,
                heads,
                s,
                s,
                dim,
                causal=causal,
                dtype="bf16",
                backward=backward,
                flops=flops,
            )
        )

    forward = time(seq)
    assert forward >= 2 * 2 * heads * seq**2 * dim / 989.4e12 * 0.999 or seq < 1024
    assert time(2 * seq) >= forward
    assert time(seq, causal=False) >= forward
    assert time(seq, backward=True) >= forward
    assert time(seq, flops=heads * seq * dim) <= forward
