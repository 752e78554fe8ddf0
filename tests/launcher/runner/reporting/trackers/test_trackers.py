"""Trackers beside training: they get every number, and none of their faults ends a run."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from gpuplan.launcher.runner.reporting.trackers import trackers
from gpuplan.launcher.runner.reporting.trackers.mlflow_runs import mlflow_opener
from gpuplan.launcher.runner.reporting.trackers.trackers import (
    Open,
    Tracker,
    numbers_of,
    open_trackers,
)
from gpuplan.launcher.runner.training_options import TRACKERS


class Kept:
    """A run that is kept in lists, and fails or waits where it is told to."""

    def __init__(self, run_id: str = "r1") -> None:
        self.run_id = run_id
        self.rows: list[dict[str, float]] = []
        self.ended: list[bool] = []
        self.fails_at: int | None = None
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def log(self, rows: Sequence[dict[str, float]]) -> None:
        self.may_go_on.wait()
        if any(row["step"] == self.fails_at for row in rows):
            raise OSError("No space left on device\nand more of it")
        self.rows += rows

    def close(self, *, failed: bool) -> None:
        self.ended.append(failed)


def opening(run: Kept, asked: list[str | None] | None = None) -> Open:
    def open_run(run_id: str | None) -> Kept:
        if asked is not None:
            asked.append(run_id)
        return run

    return open_run


def line(folder: Path, text: str, name: str = "metrics.jsonl") -> None:
    with (folder / name).open("a") as file:
        file.write(text)


def metrics_line(step: int) -> str:
    return json.dumps({"step": step, "time": 1e9, "loss": 1 / step, "mfu": None}) + "\n"


def test_every_line_of_both_files_arrives_and_the_end_is_told(tmp_path: Path) -> None:
    run, told = Kept(), []
    tracker = Tracker("mlflow", tmp_path, opening(run), told.append, pause_s=1e-3)
    for step in range(1, 101):
        line(tmp_path, metrics_line(step))
    line(tmp_path, '{"step": 50, "time": 2e9, "loss": 3.0, "best_step": 50}\n', "evaluations.jsonl")
    tracker.close(failed=True)

    steps = [one for one in run.rows if "loss" in one]
    assert steps == [{"step": step, "time": 1e9, "loss": 1 / step} for step in range(1, 101)]
    assert {"step": 50, "time": 2e9, "evaluation/loss": 3.0} in run.rows
    assert (len(run.rows), run.ended, told) == (101, [True], [])


def test_a_run_that_goes_on_goes_on_there_without_a_gap(tmp_path: Path) -> None:
    asked: list[str | None] = []
    run = Kept("r7")
    line(tmp_path, metrics_line(1))
    Tracker("wandb", tmp_path, opening(run, asked), print).close(failed=False)
    # Killed while its tracker was behind, and in the middle of a line.
    line(tmp_path, metrics_line(2) + '{"step": 3, "lo' + metrics_line(3) + metrics_line(4))
    Tracker("wandb", tmp_path, opening(run, asked), print).close(failed=False)

    assert asked == [None, "r7"]
    assert [one["step"] for one in run.rows] == [1, 2, 4]
    (tmp_path / "trackers" / "wandb.json").write_text("half a fi")
    Tracker("wandb", tmp_path, opening(run, asked), print).close(failed=False)
    assert asked[2] is None


def test_a_tracker_that_fails_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    run, told = Kept(), []
    run.fails_at = 2
    line(tmp_path, metrics_line(1) + metrics_line(2))
    Tracker("wandb", tmp_path, opening(run), told.append).close(failed=False)
    assert told == [
        "nothing more is written to wandb (OSError: No space left on device); the run goes on"
    ]
    run.fails_at = None
    Tracker("wandb", tmp_path, opening(run), told.append).close(failed=False)
    assert [one["step"] for one in run.rows] == [1, 2], "what it lacked did not come later"

    def refuses(_: str | None) -> Kept:
        raise SystemExit("no key")

    Tracker("wandb", tmp_path, refuses, told.append).close(failed=False)
    assert "SystemExit: no key" in told[1]
    assert len(told) == 2


def test_one_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    run, told = Kept(), []
    run.may_go_on.clear()
    line(tmp_path, metrics_line(1))
    tracker = Tracker("wandb", tmp_path, opening(run), told.append)
    tracker.close(failed=False, close_s=0.01)
    run.may_go_on.set()

    assert len(told) == 1
    assert "has not taken everything" in told[0]


def test_one_that_cannot_be_imported_is_said_and_left_out(tmp_path: Path) -> None:
    def missing(folder: Path, facts: Mapping[str, Any]) -> Open:
        raise ImportError("No module named 'wandb'")

    told: list[str] = []
    openers = {"wandb": missing, "mlflow": lambda folder, facts: opening(Kept())}
    (left,) = open_trackers(["wandb", "mlflow"], tmp_path, {}, told.append, openers)
    left.close(failed=False)
    assert told == [
        "nothing is written to wandb (ImportError: No module named 'wandb'); the run goes on"
    ]
    assert set(trackers.OPENERS) == set(TRACKERS)


def test_numbers_are_those_of_nested_parts_too() -> None:
    metrics = {"step": 3, "loss": 0.5, "mfu": None, "ok": True, "parts_s": {"input": 0.1}}
    assert numbers_of(metrics, "x/") == {"x/step": 3, "x/loss": 0.5, "x/parts_s/input": 0.1}


@pytest.mark.slow
def test_mlflow_keeps_names_that_it_refuses_under_others(
    tmp_path: Path, require: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("mlflow", "pip install 'gpuplan[mlflow]'")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    place = f"sqlite:///{tmp_path / 'mlflow.db'}"
    run = mlflow_opener(tmp_path, {"model": "m" * 9000})(None)
    run.log([{"step": 1, "time": 2.0, "recall@5": 0.5, "loss": float("nan")}])
    again = mlflow_opener(tmp_path, {"model": "other"})(run.run_id)
    again.log([{"step": step, "time": 3.0, "loss": 1.0} for step in range(2, 1503)])
    again.close(failed=True)

    client = import_module("mlflow").MlflowClient(place)
    kept = client.get_run(run.run_id)
    assert again.run_id == run.run_id
    assert kept.info.status == "FAILED"
    assert kept.data.metrics["recall_5"] == 0.5
    assert len(client.get_metric_history(run.run_id, "loss")) == 1502
    lost = mlflow_opener(tmp_path, {})("0" * 32)
    assert lost.run_id not in (run.run_id, "0" * 32)
