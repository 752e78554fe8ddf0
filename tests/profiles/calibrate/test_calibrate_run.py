"""A calibration from its first kernel to its file: crashes, hangs and Ctrl-C."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from measured_points import true_s

from gpuplan.catalog.errors import GpuplanError, UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.profiles.calibrate import calibrate as calibrate_module
from gpuplan.profiles.calibrate.calibrate import CalibrationRequest, calibrate
from gpuplan.profiles.calibrate.schedule import Point
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.curves.files import read_curve_file
from gpuplan.profiles.curves.user_curves import curves_dir

H200 = load_catalogue().accelerators["H200-141GB-SXM"]


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
