"""`gpuplan calibrate` as a person and as a program reads it."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuplan.cli.main import run
from gpuplan.profiles.calibrate import calibrate as calibrate_module
from gpuplan.profiles.calibrate.schedule import Point
from gpuplan.profiles.curves.files import CURVES_DIR

QUICK = ["calibrate", "--quick", "--dtype", "bf16"]


class FakeChild:
    """A device that reaches half of the H200's peak and bandwidth."""

    interrupted_at: int | None = None
    spread = 0.02

    def __init__(self, device: str) -> None:
        self.said: Iterator[Any] = iter(())

    def facts(self) -> dict[str, Any]:
        return {"name": "NVIDIA H200", "devices": 1, "free_bytes": 140e9, "torch": "2.13.0"}

    def send(self, points: Sequence[Point]) -> None:
        said: list[Any] = []
        for index, point in enumerate(points):
            time_s = 3e-6 + point.flops / 5e14 + point.size_bytes / 2.4e12
            said += [{"begin": index}, {"index": index, "time_s": time_s, "spread": self.spread}]
        said.append({"load": {"sm_clock_mhz": 1500.0, "slowed_by": ["power cap"]}})
        self.said = iter([*said, {"done": True}])

    def next(self, timeout_s: float) -> Any:
        said = next(self.said)
        if said.get("begin") == self.interrupted_at is not None:
            raise KeyboardInterrupt
        return said

    def kill(self) -> None:
        pass


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> type[FakeChild]:
    monkeypatch.setattr(calibrate_module, "MeasuringChild", FakeChild)
    monkeypatch.setattr(FakeChild, "interrupted_at", None)
    return FakeChild


def test_the_summary_says_what_was_measured_and_where_it_is(gpuplan_home: Path, capsys) -> None:
    assert run(QUICK) == 0
    out, err = capsys.readouterr()
    assert "H200-141GB-SXM" in out.splitlines()[0]
    assert "all of the plan" in out.splitlines()[0]
    rows = {line.split("  ")[0]: line for line in out.splitlines()}
    assert "TFLOP/s" in rows["gemm bf16"] and "2.0 %" in rows["gemm bf16"]
    assert "GB/s" in rows["stream copy"]
    assert "attention_backward bf16" in rows
    assert "Clocks were lowered by: power cap." in out
    path = gpuplan_home / "data" / "curves" / "H200-141GB-SXM.json"
    assert f"Curves: {path}" in out
    assert "Repeats differ" not in out
    assert path.is_file()
    assert not err


def test_repeats_that_differ_widely_are_an_error_and_are_said(
    device: type[FakeChild], gpuplan_home: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(device, "spread", 0.9)
    assert run(QUICK) == 0
    out = capsys.readouterr().out
    assert "Repeats differ widely (gemm bf16, " in out
    assert "close other programs and measure again" in out
    record = json.loads((gpuplan_home / "data" / "curves" / "H200-141GB-SXM.json").read_text())
    errors = [
        record["gemm_grids"]["bf16"]["relative_error"],
        record["attention_forward"]["relative_error"],
        record["attention_backward"]["relative_error"],
        record["convolutions"]["bf16"]["relative_error"],
        *(part["relative_error"] for part in record["memory"].values()),
    ]
    assert min(errors) >= 0.9 / 2.56 - 1e-3
    assert record["sources"][1].startswith("beside other programs: repeats differed by 25 %")


def test_json_is_data_and_names_the_command(tmp_path: Path, capsys) -> None:
    out_file = tmp_path / "curves.json"
    assert run([*QUICK, "--out", str(out_file), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["path"] == str(out_file)
    assert answer["accelerator"] == "H200-141GB-SXM"
    assert (
        answer["measurement"]["command"] == "gpuplan calibrate --device cuda --dtype bf16 --quick"
    )
    assert {row["part"] for row in answer["parts"]} >= {"gemm bf16", "stream norm"}
    assert str(tmp_path) not in out_file.read_text(), "a file that is shared holds no paths"


def test_ctrl_c_keeps_the_file_and_ends_with_130(device: type[FakeChild], tmp_path, capsys) -> None:
    device.interrupted_at = 60
    file = tmp_path / "curves.json"
    assert run([*QUICK, "--out", str(file)]) == 130
    out, err = capsys.readouterr()
    assert "until it was interrupted" in out
    assert f"kept in {file}" in err
    assert json.loads(file.read_text())["measurement"]["ended"] == "interrupted"
    device.interrupted_at = 1
    assert run([*QUICK, "--out", str(tmp_path / "none.json")]) == 130
    assert "nothing was left half-written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["curves.json"]


def test_wrong_names_and_files_are_usage_errors(tmp_path: Path, capsys) -> None:
    assert run(["calibrate", "--name", "H201"]) == 2
    assert "Did you mean H200" in capsys.readouterr().err
    assert run(["calibrate", "--device", "cpu"]) == 2
    assert "--offers" in capsys.readouterr().err
    assert run(["calibrate", "--dtype", "bf17"]) == 2
    assert run(["calibrate", "--check", str(tmp_path / "none.json")]) == 2
    (tmp_path / "bad.json").write_text("{}")
    assert run(["calibrate", "--check", str(tmp_path / "bad.json")]) == 1
    assert "docs/curves.md" in capsys.readouterr().err


def test_an_embedded_file_is_held_against_its_relative(capsys) -> None:
    file = CURVES_DIR / "GB200.json"
    assert run(["calibrate", "--check", str(file), "--format", "json"]) == 0
    rows = {row["part"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    gemm = rows["gemm bf16"]
    assert gemm["against"] == "B200-180GB-SXM"
    assert gemm["points"] >= 4000
    assert 0.02 < gemm["held_out"] < 0.06
    assert 0.03 < gemm["mape"] < 0.15
    assert run(["calibrate", "--check", str(file)]) == 0
    assert "B200-180GB-SXM" in capsys.readouterr().out


def test_the_command_line_itself_never_imports_torch() -> None:
    code = (
        "import sys; from gpuplan.cli.main import run;"
        f"run(['calibrate', '--check', {str(CURVES_DIR / 'T4.json')!r}]);"
        "import gpuplan.profiles.calibrate.calibrate; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.slow
def test_a_device_can_be_judged_without_its_own_curves(tmp_path: Path, capsys) -> None:
    record = {
        "id": "one", "source": "test", "source_group": "test", "model": "gpt2.py", "params": {},
        "accelerator": "H200-141GB-SXM", "accelerators": 1, "per_node": 1,
        "layout": {"data": 1, "shard": 1, "zero_stage": 0}, "precision": "bf16-amp",
        "micro_batch": 8, "grad_accum": 1, "global_batch": 8, "recompute": "none",
        "compile": True, "stack": "torch-compile", "measured": {"step_time_s": 0.1},
    }  # fmt: skip
    runs = tmp_path / "runs.jsonl"
    runs.write_text(json.dumps(record) + "\n")

    def predicted(*options: str) -> float:
        assert run(["validate", str(runs), "--format", "json", *options]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"][:1]
        assert row["skipped"] is None
        return row["predicted"]

    own, left_out = predicted(), predicted("--without-curves-of", "H200")
    assert left_out != own
    assert left_out == pytest.approx(own, rel=0.25)
    assert predicted("--without-curves-of", "A100-80GB-SXM") == own
    assert run([*QUICK, "--out", str(tmp_path / "mine.json")]) == 0
    capsys.readouterr()
    mine = predicted("--curves", str(tmp_path / "mine.json"))
    assert mine > 1.2 * own, "the fake device is slower than an H200"
