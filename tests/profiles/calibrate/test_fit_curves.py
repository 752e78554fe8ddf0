"""The fits recover what made the data, and write files that the reader understands."""

import json

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.profiles.calibrate.fit_curves import (
    fitted_tiles,
    fp32_dims,
    fp32_machine,
    stream_fraction,
)
from gpuplan.profiles.calibrate.fit_levels import fitted_levels
from gpuplan.profiles.calibrate.fit_network import fitted_network
from gpuplan.profiles.calibrate.grids import (
    fitted_attention_grids,
    fitted_gemm_grid,
    half_grid_error,
)
from gpuplan.profiles.curves.files import CURVES_DIR, TileModel, read_curve_file, shared_table
from gpuplan.profiles.curves.gemm import tile_kernel_s

DEVICES = load_catalogue().accelerators


def gemm_rows(holes=0):
    m, n, k = (x.ravel() for x in np.meshgrid(*[2 ** np.arange(6, 12)] * 3, indexing="ij"))
    latency_ms = 2.0 * m * n * k / 200e12 * 1e3
    rows = {"m": m, "n": n, "k": k, "latency_ms_median": latency_ms}
    rows["dtype"] = np.full(len(m), "bfloat16")
    return {name: column[holes:] for name, column in rows.items()}


def test_gemm_grid_keeps_measured_times_and_fills_holes_by_flops():
    m, n, k, log_time = fitted_gemm_grid(gemm_rows(holes=3), "bfloat16")
    assert log_time.shape == (6, 6, 6)
    flops = 2 * m[:, None, None] * n[None, :, None] * k[None, None, :]
    assert np.exp(log_time) == pytest.approx(flops / 200e12)


def test_half_grid_error_is_nothing_for_a_power_law_and_sees_a_bump():
    axes = tuple(2.0 ** np.arange(5) for _ in range(3))
    law = np.log(axes[0])[:, None, None] + 0.5 * np.log(axes[1])[None, :, None] + np.zeros(5)
    assert np.abs(half_grid_error(law, axes)).max() < 1e-12
    law[2, 2, 1] += 0.3
    assert np.abs(half_grid_error(law, axes)).max() > 0.25


def test_attention_grids_recover_a_constant_rate():
    batch, heads, seq = (
        x.ravel() for x in np.meshgrid([1, 2, 4], [8, 16, 32], [512, 1024, 4096], indexing="ij")
    )
    rows = {
        "batch_size": batch,
        "num_heads": heads,
        "num_kv_heads": heads,
        "seq_len": seq,
        "head_dim": np.full(len(seq), 128),
        "latency_ms_median": 2.0 * batch * heads * seq**2 * 128 / 150e12 * 1e3,
    }
    ((head_dim, batch_heads, seqs, group, log_time),) = fitted_attention_grids(rows)
    assert head_dim == 128
    work = 2 * 128 * batch_heads[:, None, None] * seqs[None, :, None] ** 2 + 0 * group
    assert np.exp(log_time) == pytest.approx(work / 150e12)


def test_tiles_recover_the_efficiency_they_were_made_with():
    device = DEVICES["A100-80GB-PCIe"]
    random = np.random.default_rng(1)
    m, n, k = (2.0 ** random.integers(9, 14, 200) for _ in range(3))
    batch = np.ones_like(m)
    size_bytes = 4 * (m * k + n * k + m * n)
    true = TileModel(0.8, 128.0, 40.0, 0.5, 0.0)
    time_s = tile_kernel_s(
        true, fp32_machine(device), m, n, k, batch, 2 * m * n * k, size_bytes
    ) * random.normal(1, 0.01, len(m))
    found = fitted_tiles(device, (m, n, k, batch), size_bytes, time_s)
    assert found.efficiency == pytest.approx(0.8, rel=0.03)
    assert found.relative_error < 0.1


def test_shapes_of_the_fp32_table():
    (m, n, k, batch), size_bytes = fp32_dims("linear", np.array([[4, 128, 256, 512]]))
    assert (m[0], n[0], k[0], batch[0]) == (512, 512, 256, 1)
    assert size_bytes[0] == 4 * (512 * 256 + 256 * 512 + 512 * 512)
    (m, n, k, batch), _ = fp32_dims("bmm", np.array([[12, 64, 32, 96]]))
    assert (m[0], n[0], k[0], batch[0]) == (64, 96, 32, 12)
    (m, n, k, _), _ = fp32_dims("conv", np.array([[8, 3, 64, 7, 224, 2, 3]]))
    assert (m[0], n[0], k[0]) == (8 * 112 * 112, 64, 147)


def test_stream_fraction_counts_every_tensor_once():
    device = DEVICES["V100-32GB-PCIe"]
    elements = 2**28
    latency_us = 3 * 4 * elements / (0.8 * device.memory_bandwidth_bytes_per_s) * 1e6 + 10
    rows = {
        "op": np.full(6, "add"),
        "shape": np.full(6, json.dumps([2**14, 2**14])),
        "latency_us": np.full(6, latency_us),
    }
    fraction, sigma = stream_fraction(device, rows, "pointwise") or (0, 0)
    assert fraction == pytest.approx(0.8, rel=1e-3)
    assert sigma == pytest.approx(0, abs=1e-6)
    assert stream_fraction(device, rows, "norm") is None


def test_network_fit_recovers_latency_and_peak(tmp_path):
    sizes = 2.0 ** np.arange(20, 34)
    time_s = 80e-6 + 1.875 * sizes / 300e9
    lines = [
        json.dumps(
            {
                "collective": "all_reduce",
                "nodes": 2,
                "gpus": 16,
                "instance_or_system": "a system",
                "network": "RoCE",
                "source": "made for this test",
                "size_bytes": size,
                "busbw_gbps": 1.875 * size / t / 1e9,
            }
        )
        for size, t in zip(sizes, time_s, strict=True)
    ]
    path = tmp_path / "collectives.jsonl"
    path.write_text("\n".join(lines))
    (fit,) = fitted_network(path)
    assert fit["peak_bus_bytes_per_s"] == pytest.approx(300e9, rel=0.03)
    assert fit["latency_us"] == pytest.approx(80, rel=0.1)


def test_levels_compare_devices_by_the_same_tool(tmp_path):
    row = {"kind": "matmul_max_achievable", "dtype": "bf16"}
    path = tmp_path / "calibration.jsonl"
    path.write_text(
        "\n".join(
            json.dumps(row | {"accelerator": name, "tflops": tflops})
            for name, tflops in (("A100-80GB-SXM", 280.0), ("A100-80GB-PCIe", 252.0))
        )
    )
    levels = fitted_levels(path, DEVICES)["gemm"]
    assert levels.pop("T4")["source"].startswith("DeepBench")  # Stated, of no row here.
    assert levels == {
        "A100-80GB-PCIe": {
            "level": 0.9,
            "relative_to": "A100-80GB-SXM",
            "relative_error": 0.08,
            "source": "achievable matmul against A100-80GB-SXM by the same tool:"
            " matmul_max_achievable 0.81 of peak",
        }
    }


@pytest.mark.parametrize("path", sorted(CURVES_DIR.glob("[!_]*.json")), ids=lambda p: p.stem)
def test_every_committed_file_is_complete_and_sourced(path):
    curves = read_curve_file(path)
    assert curves.accelerator == path.stem
    assert curves.accelerator in DEVICES
    assert curves.sources
    for grid in curves.gemm_grids.values():
        assert 0 < grid.relative_error < 0.1
        assert np.all(np.diff(grid.m) > 0)
    for grids in curves.attention_grids.values():
        assert [g.head_dim for g in grids] == sorted(g.head_dim for g in grids)


def test_every_rule_names_measured_relatives():
    for family in shared_table("_relations")["families"]:
        for kind in ("gemm", "attention", "fp32", "memory", "collective"):
            for relative in family[kind]["relatives"]:
                assert (CURVES_DIR / f"{relative['name']}.json").exists()
            assert 0 < family[kind]["relative_error"] < 1
            assert family[kind]["source"]
