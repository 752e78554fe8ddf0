"""Measuring a device: what is measured first, what becomes of it, and what an accident costs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured_points import true_s

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Accelerator
from gpuplan.profiles.calibrate.calibrate import CalibrationRequest, calibrate, named_accelerator
from gpuplan.profiles.calibrate.check import check_curve_file
from gpuplan.profiles.calibrate.driver import summary_of_load
from gpuplan.profiles.calibrate.fit import UNCHECKED_ERROR, Measured, fitted_record, is_usable
from gpuplan.profiles.calibrate.schedule import Point, Scope, default_dtypes, measuring_plan
from gpuplan.profiles.curves.device_curves import DeviceCurves, curves_for
from gpuplan.profiles.curves.files import parsed_curves

H200 = load_catalogue().accelerators["H200-141GB-SXM"]
OWN_CPU = """
accelerators:
  - {name: MY-CPU, memory_gib: 8, memory_bandwidth_gb_per_s: 400, fp32_tflops: 20}
offers:
  - {instance: desk, accelerator: MY-CPU, accelerators_per_node: 1, usd_per_hour: 0.1}
"""


def scope(**changes: Any) -> Scope:
    facts: dict[str, Any] = {
        "accelerator": H200,
        "scale": "gpu",
        "dtypes": default_dtypes(H200),
        "memory_bytes": 140e9,
        "ranks": (2, 8),
    }
    return Scope(**facts | changes)


def measured(points: Sequence[Point], *, noise: float = 0.02) -> list[Measured]:
    random, curves = np.random.default_rng(0), curves_for(H200)
    return [Measured(p, true_s(p, curves) * float(random.lognormal(0, noise)), noise)
            for p in points]  # fmt: skip


def test_the_plan_begins_with_coarse_grids_of_everything():
    points = measuring_plan(scope())
    assert len({(p.part, p.dtype, p.shape) for p in points}) == len(points)
    levels = [p.level for p in points]
    assert levels == sorted(levels)
    parts = {p.part for p in points}
    first = {p.part for p in points if p.level == 0}
    assert first == parts
    assert {p.dtype for p in points if p.part == "gemm"} == {"bf16", "tf32", "fp32", "fp8"}
    assert (points[0].part, points[0].dtype) == ("gemm", "bf16")
    assert sum(level == 0 for level in levels) < 200


def test_the_plan_keeps_to_the_memory_the_dtypes_and_the_ranks():
    points = measuring_plan(scope(memory_bytes=1e9, dtypes=("bf16",), ranks=(), levels=2))
    assert max(p.size_bytes for p in points) <= 0.25e9
    assert not [p for p in points if p.part == "collective"]
    assert {p.dtype for p in points if p.part == "gemm"} == {"bf16"}
    assert max(p.level for p in points) == 1


def test_work_and_bytes_of_a_point():
    assert Point("gemm", "bf16", (2, 3, 5), 0).flops == 60
    assert Point("gemm", "fp8", (2, 3, 5), 0).size_bytes == 2 * 5 + 3 * 5 + 2 * 2 * 3
    forward = Point("attention", "bf16", (64, 8, 1024, 1), 0)
    assert forward.flops == 4 * 8 * 1024**2 * 64 / 2
    assert Point("attention_backward", "bf16", forward.shape, 0).flops == 2.5 * forward.flops
    conv = Point("convolution", "bf16", (2, 8, 16, 3, 10, 2, 1), 0)
    assert conv.flops == 2 * 2 * 16 * 25 * 8 * 9
    assert Point("stream", "copy", (100,), 0).size_bytes == 800
    assert Point.from_json(json.loads(json.dumps(conv.to_json()))) == conv


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return fitted_record(H200, "gpu", measured(measuring_plan(scope())), version="1")


def test_a_fitted_file_predicts_what_was_not_measured(record: dict[str, Any], tmp_path: Path):
    mine, true = DeviceCurves(H200, parsed_curves(record, tmp_path)), curves_for(H200)
    random = np.random.default_rng(1)
    m, n, k = (np.exp(random.uniform(np.log(512), np.log(16000), 200)) // 8 * 8 for _ in range(3))
    errors = mine.gemm_s(m, n, k, dtype="bf16") / true.gemm_s(m, n, k, dtype="bf16") - 1
    assert np.mean(np.abs(errors)) < 0.05
    assert 0.005 < mine.relative_error("gemm", "bf16") < 0.1
    shape = (4, 24, 24, 3000, 3000, 96)
    ratio = mine.attention_s(*shape, causal=True, dtype="bf16") / true.attention_s(
        *shape, causal=True, dtype="bf16"
    )
    assert float(ratio) == pytest.approx(1, abs=0.06)
    backward, forward = (
        float(mine.attention_s(*shape, causal=True, dtype="bf16", backward=b))
        for b in (True, False)
    )
    assert backward / forward == pytest.approx(2.4, rel=0.05)
    assert mine.memory_fraction("pointwise") == pytest.approx(0.9, rel=0.03)
    assert mine.memory_fraction("embedding") == pytest.approx(0.5, rel=0.03)
    assert mine.collective_s("all_gather", 3e8, 8) == pytest.approx(
        true.collective_s("all_reduce", 3e8, 8), rel=0.15
    )
    assert record["convolutions"]["bf16"]["backward_slowdown"] > 0
    assert set(record["tile_models"]["fp32"]) == {"linear", "batched", "conv"}


def test_every_dtype_measured_is_used_as_such(record: dict[str, Any], tmp_path: Path):
    mine = DeviceCurves(H200, parsed_curves(record, tmp_path))
    for dtype in ("bf16", "tf32", "fp32", "fp8"):
        assert mine.basis_of("gemm", dtype) == "measured"
    assert mine.basis_of("attention", "fp32") == "measured"
    assert mine.basis_of("conv", "bf16") == "measured"
    assert mine.relative_of("gemm") == H200.name


def test_the_first_minute_is_enough_for_a_file(tmp_path: Path):
    coarse = [p for p in measuring_plan(scope()) if p.level == 0]
    record = fitted_record(H200, "gpu", measured(coarse), version="1")
    assert is_usable(record)
    assert record["gemm_grids"]["bf16"]["m"] == [512, 8192]
    assert record["gemm_grids"]["bf16"]["relative_error"] == UNCHECKED_ERROR
    mine, true = DeviceCurves(H200, parsed_curves(record, tmp_path)), curves_for(H200)
    ratio = mine.gemm_s(4096, 4096, 4096, dtype="bf16") / true.gemm_s(
        4096, 4096, 4096, dtype="bf16"
    )
    assert float(ratio) == pytest.approx(1, abs=0.4)


def test_a_grid_with_holes_takes_the_finest_level_that_is_half_there():
    points = [p for p in measuring_plan(scope(dtypes=("bf16",))) if p.part == "gemm"]
    by_level = [[p for p in points if p.level <= level] for level in range(3)]
    some = by_level[1] + by_level[2][len(by_level[1]) : len(by_level[1]) + 50]
    few = fitted_record(H200, "gpu", measured(some), version="1")["gemm_grids"]["bf16"]
    most = fitted_record(H200, "gpu", measured(points[: int(0.7 * len(points))]), version="1")
    assert len(few["m"]) == 5
    assert len(most["gemm_grids"]["bf16"]["m"]) == 10
    whole = fitted_record(H200, "gpu", measured(points), version="1")["gemm_grids"]["bf16"]
    ratio = np.array(most["gemm_grids"]["bf16"]["time_us"]) / whole["time_us"]
    assert np.median(np.abs(ratio - 1)) < 0.05
    assert np.percentile(np.abs(ratio - 1), 90) < 0.4


def test_nothing_measured_is_no_file():
    assert not is_usable(fitted_record(H200, "gpu", [], version="1"))
    one = measured([Point("gemm", "bf16", (512, 1024, 1024), 0)])
    assert not is_usable(fitted_record(H200, "gpu", one, version="1"))


def test_the_check_tells_a_faithful_file_from_a_slow_device(record: dict[str, Any], tmp_path: Path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(record))
    rows = {row.part: row for row in check_curve_file(path).rows}
    gemm = rows["gemm bf16"]
    assert gemm.against == "H100-80GB-SXM", "the embedded H200 has no products of its own"
    assert gemm.mape is not None and gemm.mape < 0.05
    assert gemm.held_out is not None and gemm.held_out < 0.1
    assert rows["attention_backward bf16"].factor == pytest.approx(2.4 / 3.15, rel=0.03)
    slow = json.loads(path.read_text())
    times = slow["gemm_grids"]["bf16"]["time_us"]
    slow["gemm_grids"]["bf16"]["time_us"] = [2 * time for time in times]
    path.write_text(json.dumps(slow))
    rows = {row.part: row for row in check_curve_file(path).rows}
    assert rows["gemm bf16"].factor == pytest.approx(2 * (gemm.factor or 0), rel=0.01)
    assert (rows["gemm bf16"].mape_after_factor or 1) < 0.05


def test_clocks_are_summed_up():
    samples = [{"sm_clock_mhz": mhz, "temperature_c": 60.0, "power_w": None, "slowed_by": why}
               for mhz, why in ((1980.0, []), (1500.0, ["power cap"]))]  # fmt: skip
    load = summary_of_load(samples)
    assert load is not None
    assert load["sm_clock_mhz"] == {"low": 1500.0, "median": 1980.0, "high": 1980.0}
    assert load["slowed_by"] == ["power cap"]
    assert "power_w" not in load
    assert summary_of_load([]) is None


def test_host_processors_of_the_catalogue_have_names_too():
    catalogue = load_catalogue()
    name = next(name for name, row in catalogue.accelerators.items() if row.is_cpu)
    assert named_accelerator(name, catalogue).name == name
    assert named_accelerator("NVIDIA H200", catalogue).name == H200.name


@pytest.mark.slow
def test_the_host_itself_can_be_measured_and_is_then_predicted(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    offers = tmp_path / "offers.yaml"
    offers.write_text(OWN_CPU)
    done = calibrate(
        CalibrationRequest(
            device="cpu", name="MY-CPU", offers=offers, budget_s=60, quick=True, ranks=2
        )
    )
    device: Accelerator = load_catalogue(offers).accelerators["MY-CPU"]
    mine = curves_for(device)
    assert mine.basis_of("gemm", "fp32") == "measured"
    times = {r.point.shape: r.time_s for r in done.run.results if r.point.part == "gemm"}
    grid = done.record["gemm_grids"]["fp32"]
    nodes = [(m, n, k) for m, n, k in times if m in grid["m"] and n in grid["n"] and k in grid["k"]]
    assert len(nodes) >= 8
    for node in nodes:
        # A product that holds another takes no less: what a busy machine says to the contrary
        # is not kept. Four digits are; no time falls below the peak.
        larger = (other for other in nodes if all(a >= b for a, b in zip(other, node, strict=True)))
        expected = min(times[other] for other in larger)
        assert float(mine.gemm_s(*node, dtype="fp32")) == pytest.approx(expected, rel=0.01)
    assert {r.point.part for r in done.run.results} >= {
        "attention", "attention_backward", "convolution", "convolution_backward", "stream",
    }  # fmt: skip
    assert not [point.what for point, _ in done.run.skipped if point.part != "collective"]
    tables = done.record["collectives"]["tables"]
    assert set(tables) >= {"all_reduce", "all_gather"}
    assert float(mine.collective_s("all_reduce", 2**20, 2)) > 0
    assert done.record["measurement"]["device"]["threads"] == 1


@pytest.mark.slow
def test_a_gpu_can_be_measured(require) -> None:
    require("accelerator", "kernels are timed on a GPU")
    done = calibrate(CalibrationRequest(budget_s=90, quick=True))
    assert not [why for _, why in done.run.skipped if why != "out of memory"]
    mine = curves_for(done.accelerator)
    dtype = "bf16" if "bf16" in done.accelerator.peak_flops else "fp32"
    rate = 2 * 4096**3 / float(mine.gemm_s(4096, 4096, 4096, dtype=dtype))
    assert 0.2 < rate / done.accelerator.peak_flops[dtype] < 1
    assert 0.3 < mine.memory_fraction("copy") <= 1
    assert done.record["kernel_floor_us"] < 20, "the host's launch is not in it"
