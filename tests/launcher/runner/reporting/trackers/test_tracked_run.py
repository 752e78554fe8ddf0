"""Real runs into real trackers: killed and continued, and with a tracker that cannot write."""

from __future__ import annotations

import json
import signal
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import REPOSITORY, losses, make_job, metrics, run

from gpuplan.launcher.runner.job import CheckpointPolicy
from gpuplan.launcher.runner.training_options import TrainingOptions

pytestmark = pytest.mark.slow

LINES = REPOSITORY / "examples" / "lines.py"
STEPS = 12
BLOCK, HEADER = 32_768, 7


@pytest.fixture(autouse=True)
def no_settings_of_mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def killed_once(tmp_path: Path) -> Path:
    """Return a model file whose first run dies by kill -9 after step 6, its tracker open."""
    path = tmp_path / "killed.py"
    path.write_text(
        f"""{LINES.read_text()}

def on_metrics(metrics):
    import os, signal, time
    flag = Path(__file__).with_name("killed")
    if metrics["step"] == 6 and not flag.exists():
        while not list(flag.parent.glob("tracked/trackers/*.json")):
            time.sleep(0.01)
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    return path


def tracked(folder: Path, model: Path, *names: str) -> Path:
    return make_job(
        folder,
        model,
        plan=None,
        steps=STEPS,
        checkpoint=CheckpointPolicy(every_steps=4),
        training=TrainingOptions(tracker=names, eval_every_steps=6),
        micro_batch=4,
        workers=0,
    )


def killed_and_continued(folder: Path, model: Path, name: str) -> list[float]:
    """Return the losses of a run that is killed once and goes on; those of one that never was."""
    assert run(tracked(folder, model, name), 1).returncode == -signal.SIGKILL
    whole = run(tracked(folder.with_name("whole"), model), 1)
    done = run(tracked(folder, model, name), 1)
    assert (whole.returncode, done.returncode) == (0, 0), done.stderr[-2000:]
    assert "the run goes on" not in done.stderr
    found = losses(folder)
    assert found == pytest.approx(losses(folder.with_name("whole")), abs=1e-6)
    return found


def mlflow_curve(folder: Path, name: str) -> dict[int, float]:
    """Return a curve of the only run of a database, the last word on each step counting."""
    client = import_module("mlflow").MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("gpuplan")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    return {one.step: one.value for one in client.get_metric_history(found.info.run_id, name)}


def wandb_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of all files of a W&B run, in the order they were begun in."""
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        for text in log_records(path.read_bytes()):
            record = import_module("wandb.proto.wandb_internal_pb2").Record()
            record.ParseFromString(text)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                yield {
                    "/".join(one.nested_key) or one.key: json.loads(one.value_json) for one in items
                }


def log_records(text: bytes) -> Iterator[bytes]:
    """Yield the records of LevelDB's log format, in which W&B keeps a run."""
    place, parts = HEADER, b""
    while place + HEADER <= len(text):
        if BLOCK - place % BLOCK < HEADER:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", text[place : place + HEADER])
        parts += text[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (1, 4):  # Whole, or the last part.
            yield parts
            parts = b""


def test_mlflow_gets_one_curve_of_a_run_that_was_killed(
    tmp_path: Path, killed_once: Path, require: Any
) -> None:
    require("mlflow", "pip install 'gpuplan[mlflow]'")
    folder = tmp_path / "tracked"
    found = killed_and_continued(folder, killed_once, "mlflow")

    curve = mlflow_curve(folder, "loss")
    assert [curve[step] for step in range(1, STEPS + 1)] == pytest.approx(found, abs=1e-6)
    assert sorted(mlflow_curve(folder, "evaluation/loss")) == [6, 12]
    assert set(mlflow_curve(folder, "parts_s/forward")) == set(range(1, STEPS + 1))


def test_wandb_gets_one_curve_of_a_run_that_was_killed(
    tmp_path: Path, killed_once: Path, require: Any
) -> None:
    require("wandb", "pip install 'gpuplan[wandb]'")
    folder = tmp_path / "tracked"
    found = killed_and_continued(folder, killed_once, "wandb")

    rows = list(wandb_rows(folder))
    curve = {row["step"]: row["loss"] for row in rows if "loss" in row}
    assert [curve[step] for step in range(1, STEPS + 1)] == pytest.approx(found, abs=1e-6)
    assert sorted({row["step"] for row in rows if "evaluation/loss" in row}) == [6, 12]
    files = list((folder / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    assert len({path.name for path in files}) == 1, "another run for what is one"


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_tracker_that_cannot_write_is_said_once(
    tmp_path: Path, name: str, require: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(name, f"pip install 'gpuplan[{name}]'")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "no-such-scheme://place")
    monkeypatch.setenv("WANDB_MODE", "no such mode")
    done = run(tracked(tmp_path / "run", LINES, name), 1)

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("the run goes on") == 1
    assert f"nothing more is written to {name} (" in done.stderr
    assert len(metrics(tmp_path / "run")) == STEPS
