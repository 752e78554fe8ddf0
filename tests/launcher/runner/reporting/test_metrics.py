"""What a run says of itself: figures from seconds, JSON lines, heartbeats, the progress line."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.launcher.runner.job import Job
from gpuplan.launcher.runner.reporting.metrics import (
    HEARTBEAT_EVERY_S,
    LINE_EVERY_S,
    TERMINAL_EVERY_S,
    Heartbeat,
    MetricsFile,
    ProgressLine,
    Throughput,
    duration,
    memory_metrics,
)
from gpuplan.launcher.runner.reporting.trackers.board import Board
from gpuplan.profiles.user_model.spec import parse_model_spec

EXAMPLE = Path(__file__).parents[4] / "examples" / "lstm.py"


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def throughput(**changes: Any) -> Throughput:
    known = {
        "global_batch": 32,
        "tokens_per_sample": 1000.0,
        "flops_per_sample": 1e12,
        "peak_flops": 1e15,
        "usd_per_hour": 36.0,
    }
    return Throughput(**{**known, **changes})


def job(tmp_path: Path, *, steps: int = 100, predicted_s: float | None = None) -> Job:
    plan = None if predicted_s is None else {"step_time_s": {"value": predicted_s}}
    spec = parse_model_spec(str(EXAMPLE))
    return Job(spec=spec, plan=plan, out_dir=tmp_path, steps=steps, execution=None)


def test_figures_of_one_step() -> None:
    assert throughput().of(step_s=0.5, elapsed_s=100.0) == {
        "samples_per_s": 64.0,
        "tokens_per_s": 64_000.0,
        "mfu": 0.064,
        "usd": 1.0,
    }


@pytest.mark.parametrize(
    ("unknown", "figure"),
    [
        ("tokens_per_sample", "tokens_per_s"),
        ("flops_per_sample", "mfu"),
        ("peak_flops", "mfu"),
        ("usd_per_hour", "usd"),
    ],
)
def test_what_is_not_known_is_none_and_the_rest_stays(unknown: str, figure: str) -> None:
    told = throughput(**{unknown: None}).of(step_s=0.5, elapsed_s=100.0)
    assert told[figure] is None
    assert [name for name, value in told.items() if value is None] == [figure]


@given(step_s=st.floats(1e-4, 1e3), factor=st.floats(1, 100))
def test_a_slower_step_has_less_of_everything_a_second(step_s: float, factor: float) -> None:
    fast, slow = (throughput().of(seconds, 1.0) for seconds in (step_s, factor * step_s))
    assert all(slow[name] <= fast[name] for name in ("samples_per_s", "tokens_per_s", "mfu"))


def test_a_line_a_step_that_any_reader_of_json_takes(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    file = MetricsFile(tmp_path / "run", heard.append)
    file.write({"step": 1, "loss": 2.5, "mfu": None})
    (first,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(first) == {"step": 1, "loss": 2.5, "mfu": None}
    file.write({"step": 2, "loss": float("nan"), "grad_norm": float("inf")})
    file.close()
    _, second = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(second) == {"step": 2, "loss": None, "grad_norm": None}
    assert [one["step"] for one in heard] == [1, 2]


def test_a_run_that_goes_on_adds_to_its_lines(tmp_path: Path) -> None:
    for step in (1, 2):
        file = MetricsFile(tmp_path, None)
        file.write({"step": step})
        file.close()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_heartbeat_is_written_at_once_and_then_now_and_then(tmp_path: Path) -> None:
    clock = Clock()
    heart, path = Heartbeat(tmp_path, 7, clock), tmp_path / "heartbeats" / "rank-00007"
    heart.beat(1)
    assert json.loads(path.read_text()) == {"step": 1, "time": 1000.0}
    clock.now_s += HEARTBEAT_EVERY_S / 2
    heart.beat(2)
    assert json.loads(path.read_text())["step"] == 1
    clock.now_s += HEARTBEAT_EVERY_S / 2
    heart.beat(3)
    assert json.loads(path.read_text()) == {"step": 3, "time": clock.now_s}


def test_the_line_puts_the_prediction_beside_what_was_measured(tmp_path: Path) -> None:
    line = ProgressLine(job(tmp_path, predicted_s=0.25), io.StringIO())
    told = {"step": 40, "loss": 2.34567, "tokens_per_s": 12345.6, "mfu": 0.425, "usd": 1234.5}
    assert line.text(told, typical_s=0.5) == (
        "step 40/100 · loss 2.346 · 500 ms a step (predicted 250 ms) · 12,346 tokens/s"
        " · MFU 42.5% · $1,234.50 · 30 s left"
    )


def test_the_rates_of_the_line_are_those_of_the_time_beside_them(tmp_path: Path) -> None:
    """After one slow step it said "500 ms a step" and the rate of a step of two seconds."""
    line = ProgressLine(job(tmp_path), io.StringIO())
    slow = {"step": 40, **throughput().of(2.0, 60.0), "step_time_s": 2.0}
    usual = {"step": 40, **throughput().of(0.5, 60.0), "step_time_s": 0.5}
    assert line.text(slow, typical_s=0.5) == line.text(usual, typical_s=0.5)
    assert "500 ms a step · 64,000 tokens/s" in line.text(slow, typical_s=0.5)


def test_the_line_leaves_out_what_is_not_known(tmp_path: Path) -> None:
    told = {"step": 100, "loss": None, "tokens_per_s": None, "samples_per_s": 3.14159}
    line = ProgressLine(job(tmp_path), io.StringIO())
    assert line.text(told, typical_s=2.0) == (
        "step 100/100 · 2 s a step · 3.14 samples/s · 0 ms left"
    )


@pytest.mark.parametrize(
    ("stream", "every_s"), [(Terminal(), TERMINAL_EVERY_S), (io.StringIO(), LINE_EVERY_S)]
)
def test_lines_come_now_and_then_and_the_last_one_always(
    tmp_path: Path, stream: io.StringIO, every_s: float
) -> None:
    clock = Clock()
    line = ProgressLine(job(tmp_path, steps=9), stream, clock)
    for step, passed_s in [(1, 0.0), (2, every_s / 2), (3, every_s / 2), (9, 0.0)]:
        clock.now_s += passed_s
        line.show({"step": step}, typical_s=1.0)
    line.close()
    shown = [step for step in range(1, 10) if f"step {step}/9" in stream.getvalue()]
    assert shown == [1, 3, 9]
    assert stream.getvalue().endswith("\n")
    assert stream.getvalue().count("\r") == (3 if stream.isatty() else 0)


def test_a_processor_has_no_device_memory_to_tell_of() -> None:
    told = memory_metrics(torch.device("cpu"))
    assert told == {"peak_allocated_bytes": None, "peak_reserved_bytes": None}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0005, "0.5 ms"), (1.0, "1 s"), (59.94, "59.9 s"), (60, "1.0 min"), (3600, "1.0 h")],
)
def test_durations_change_their_unit(seconds: float, words: str) -> None:
    assert duration(seconds) == words


class FailingWriter:
    """A writer of curves whose disk is full after the first point."""

    def __init__(self, folder: str) -> None:
        self.points: list[tuple[str, float, int]] = []
        assert not folder.endswith("refused/tensorboard"), "no such place"

    def add_scalar(self, name: str, value: float, step: int) -> None:
        if self.points:
            raise OSError("No space left on device")
        self.points.append((name, value, step))

    def close(self) -> None:
        raise AssertionError("closed after it failed")


def test_a_board_that_fails_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    board = Board(tmp_path, FailingWriter, told.append)
    for step in (1, 2, 3):
        board.write({"step": step, "loss": 0.5, "mfu": None, "usd": 1.0})
    board.close()

    assert told == [
        "nothing more is written for TensorBoard (OSError: No space left on device);"
        " the run goes on"
    ]
    Board(tmp_path / "refused", FailingWriter, told.append).write({"step": 1, "loss": 0.5})
    assert "no such place" in told[1]
    Board(tmp_path, None, told.append).close()
    assert len(told) == 2


def test_a_board_has_a_table_of_what_is_known(tmp_path: Path) -> None:
    texts: list[tuple[str, str]] = []

    class Writer:
        def __init__(self, _folder: str) -> None: ...

        def add_text(self, name: str, text: str) -> None:
            texts.append((name, text))

    Board(tmp_path, Writer, print).introduce({"layout": "fsdp2", "plan": None})
    assert texts == [("run", "| run | |\n|---|---|\n| layout | fsdp2 |")]
