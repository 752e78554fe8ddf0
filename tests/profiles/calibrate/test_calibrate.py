"""Measuring a device: what is measured first, what becomes of it, and what an accident costs."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuplan.catalog.errors import GpuplanError, UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Accelerator
from gpuplan.profiles.calibrate import calibrate as calibrate_module
from gpuplan.profiles.calibrate.calibrate import CalibrationRequest, calibrate, named_accelerator
from gpuplan.profiles.calibrate.check import check_curve_file
from gpuplan.profiles.calibrate.driver import summary_of_load
from gpuplan.profiles.calibrate.fit import UNCHECKED_ERROR, Measured, fitted_record, is_usable
from gpuplan.profiles.calibrate.schedule import Point, Scope, default_dtypes, measuring_plan
from gpuplan.profiles.curves.device_curves import DeviceCurves, curves_for
from gpuplan.profiles.curves.files import parsed_curves, read_curve_file
from gpuplan.profiles.curves.user_curves import curves_dir

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


def true_s(point: Point, curves: DeviceCurves) -> float:
    """Return what a device like the embedded one would measure."""
    if point.part in ("gemm", "batched"):
        m, n, k, *batch = point.shape
        return float(curves.gemm_s(m, n, k, batch=batch[0] if batch else 1, dtype=point.dtype))
    if point.part.startswith("attention"):
        dim, heads, seq, group = point.shape
        shape = (1, heads, heads / group, seq, seq, dim)
        time = curves.attention_s(*shape, causal=True, dtype=point.dtype)
        return float(time) * (2.4 if "backward" in point.part else 1)
    if point.part.startswith("convolution"):
        return point.flops / 2e14 + 5e-6
    if point.part == "stream":
        share = {"pointwise": 0.9, "embedding": 0.5}.get(point.dtype, 0.8)
        return 2e-6 + point.size_bytes / (share * H200.memory_bandwidth_bytes_per_s)
    return float(curves.collective_s("all_reduce", point.shape[1], point.shape[0]))


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


class FakeChild:
    """Measures at once, as told by `behaviour(point, index of all)`."""

    started = 0

    def __init__(self, device: str) -> None:
        type(self).started += 1
        self.device = device
        self.said: Iterator[Any] = iter(())

    def facts(self) -> dict[str, Any]:
        return {"name": "NVIDIA H200", "devices": 1, "free_bytes": 140e9, "torch": "2.13.0"}

    def send(self, points: Sequence[Point]) -> None:
        self.said = self.answers(points)

    def answers(self, points: Sequence[Point]) -> Iterator[Any]:
        for index, point in enumerate(points):
            yield {"begin": index}
            yield self.answer(index, point)
        yield {"done": True}

    def answer(self, index: int, point: Point) -> Any:
        return {"index": index, "time_s": true_s(point, curves_for(H200)), "spread": 0.01}

    def next(self, timeout_s: float) -> Any:
        del timeout_s
        said = next(self.said)
        if isinstance(said, BaseException):
            raise said
        return said

    def kill(self) -> None:
        pass


def run_with(child: type[FakeChild], monkeypatch: pytest.MonkeyPatch, **request: Any):
    monkeypatch.setattr(calibrate_module, "MeasuringChild", child)
    child.started = 0
    facts: dict[str, Any] = {"quick": True, "dtypes": ("bf16",)}
    return calibrate(CalibrationRequest(**facts | request))


def test_a_run_writes_a_file_that_is_used_from_then_on(monkeypatch):
    done = run_with(FakeChild, monkeypatch)
    assert done.path == curves_dir() / "H200-141GB-SXM.json"
    assert done.run.ended == "complete"
    assert not done.run.skipped and not done.run.rejected
    file = read_curve_file(done.path)
    assert "gpuplan calibrate" in file.sources[0] and "NVIDIA H200" in file.sources[0]
    own = curves_for(H200).own
    assert own is not None and own.path == done.path
    told = json.loads(done.path.read_text())["measurement"]
    assert told["points"]["measured"] == told["points"]["planned"] == len(done.run.results)
    assert told["noise"]["gemm bf16"] == 0.01


def test_out_of_memory_and_crashes_cost_one_kernel_each(monkeypatch):
    class Troubled(FakeChild):
        def answer(self, index: int, point: Point) -> Any:
            if point.shape[0] == 32768:
                return {"index": index, "skipped": "out of memory"}
            if (point.part, point.shape) in {
                ("gemm", (512, 1024, 8192)),
                ("attention", (64, 16, 1024, 1)),
            }:
                return None
            return super().answer(index, point)

    done = run_with(Troubled, monkeypatch)
    assert Troubled.started == 3
    reasons = [why for _, why in done.run.skipped]
    assert reasons.count("ended the measuring process") == 2
    assert set(reasons) == {"ended the measuring process", "out of memory"}
    assert len(done.run.results) + len(reasons) == done.run.planned
    assert "gemm_grids" in done.record


def test_a_device_that_crashes_always_is_given_up(monkeypatch):
    class Broken(FakeChild):
        def answer(self, index: int, point: Point) -> Any:
            return None

    with pytest.raises(GpuplanError, match="nothing was written"):
        run_with(Broken, monkeypatch)
    assert Broken.started < 10
    assert not curves_dir().exists()


def test_a_kernel_that_hangs_is_passed_over(monkeypatch):
    class Hanging(FakeChild):
        def answer(self, index: int, point: Point) -> Any:
            is_it = (point.part, point.shape) == ("gemm", (512, 1024, 8192))
            return TimeoutError() if is_it else super().answer(index, point)

    done = run_with(Hanging, monkeypatch, budget_s=600)
    assert [why for _, why in done.run.skipped] == ["no end within 120 s"]
    assert done.run.ended == "complete"


def test_results_above_the_peak_are_left_out(monkeypatch):
    class Impossible(FakeChild):
        def answer(self, index: int, point: Point) -> Any:
            said = super().answer(index, point)
            if point.part == "gemm" and point.shape[0] == 8192:
                said["time_s"] = 0.5 * point.flops / H200.peak_flops["bf16"]
            return said

    done = run_with(Impossible, monkeypatch)
    assert done.run.rejected
    assert {r.point.shape[0] for r in done.run.rejected} == {8192}
    told = json.loads(done.path.read_text())["measurement"]["rejected"]
    assert len(told) == len(done.run.rejected)
    mine = curves_for(H200)
    flops = 2 * 8192.0**3
    assert flops / float(mine.gemm_s(8192, 8192, 8192, dtype="bf16")) < H200.peak_flops["bf16"]


class Interrupted(FakeChild):
    after = 40

    def answer(self, index: int, point: Point) -> Any:
        return KeyboardInterrupt() if index == self.after else super().answer(index, point)


def test_ctrl_c_keeps_what_is_enough_for_a_file(monkeypatch):
    done = run_with(Interrupted, monkeypatch)
    assert done.run.ended == "interrupted"
    assert len(done.run.results) == 40
    own = curves_for(H200).own
    assert own is not None and own.path == done.path
    assert [path.name for path in curves_dir().iterdir()] == ["H200-141GB-SXM.json"]


def test_ctrl_c_never_replaces_a_file_that_was_measured_in_full(monkeypatch):
    before = run_with(FakeChild, monkeypatch).path.read_text()
    done = run_with(Interrupted, monkeypatch)
    assert done.path.name == "H200-141GB-SXM.json.interrupted"
    assert (curves_dir() / "H200-141GB-SXM.json").read_text() == before


def test_ctrl_c_too_early_leaves_nothing(monkeypatch):
    monkeypatch.setattr(Interrupted, "after", 2)
    with pytest.raises(KeyboardInterrupt):
        run_with(Interrupted, monkeypatch)
    assert not curves_dir().exists()


def test_an_unknown_device_is_told_how_to_become_known(monkeypatch, tmp_path):
    class Unknown(FakeChild):
        def facts(self) -> dict[str, Any]:
            return super().facts() | {"name": "NVIDIA Z9000"}

    with pytest.raises(UsageError, match="calls itself 'NVIDIA Z9000'") as caught:
        run_with(Unknown, monkeypatch)
    assert "--offers" in str(caught.value)
    with pytest.raises(UsageError, match="Did you mean"):
        run_with(FakeChild, monkeypatch, name="H201")
    with pytest.raises(UsageError, match="no peak for fp8"):
        run_with(FakeChild, monkeypatch, name="A100-80GB-SXM", dtypes=("fp8",))
    with pytest.raises(UsageError, match="1 devices are visible"):
        run_with(FakeChild, monkeypatch, ranks=2)
    with pytest.raises(UsageError, match="Cannot write"):
        (tmp_path / "file").write_text("")
        run_with(FakeChild, monkeypatch, out=tmp_path / "file" / "curves.json")


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
