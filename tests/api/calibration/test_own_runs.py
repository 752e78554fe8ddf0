"""Measured runs of the store move the curves of their device, and say what moved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from answers import make_ranked_estimate

from gpuplan import api
from gpuplan.api.validation import RecordedRuns
from gpuplan.catalog.errors import GpuplanError, UsageError
from gpuplan.cli.main import run
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.measured_steps import keep_step, workload_key
from gpuplan.launcher.store.origin import origin_of
from gpuplan.planner.plan.question import Question
from gpuplan.planner.validation.own_calibration import StoreCalibration
from gpuplan.profiles.calibrate.scale import own_record, scaled
from gpuplan.profiles.curves.choice import USUAL_CURVES, CurveChoice
from gpuplan.profiles.curves.files import read_curve_file
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process import batch
from gpuplan.profiles.tracing_process.batch import ProfileRequest, profile_all
from gpuplan.profiles.user_model.spec import parse_model_spec

A100 = "A100-80GB-SXM"
MODEL = """
import torch
def build_model(width: int = 8192):
    return torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4)))
def make_batch(batch_size: int = 4096, width: int = 8192):
    return (torch.randn(batch_size, width),)
def compute_loss(model, batch):
    return model(*batch).square().mean()
"""
NOW = datetime(2026, 11, 23, tzinfo=UTC)


MADE: dict[str | None, Profile | GpuplanError] = {}


def once(requests: Sequence[ProfileRequest]) -> dict[str, Profile | GpuplanError]:
    """Trace what has not been traced yet; every test has a cache of its own."""
    for one in requests:
        if one.content_key() not in MADE:
            MADE[one.content_key()] = profile_all([one])[one.key]
    return {one.key: MADE[one.content_key()] for one in requests}


@pytest.fixture(autouse=True)
def trace_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "profile_all", once)


def record(micro_batch: int, model: Path, **changes: Any) -> dict[str, Any]:
    facts = {
        "id": f"mb{micro_batch}",
        "source_group": "own",
        "date": "2026-11-01",
        "model": str(model),
        "params": {},
        "accelerator": "NVIDIA A100-SXM4-80GB",
        "accelerators": 1,
        "per_node": 1,
        "layout": {"data": 1},
        "precision": "bf16-amp",
        "micro_batch": micro_batch,
        "grad_accum": 1,
        "global_batch": micro_batch,
        "recompute": "none",
        "compile": False,
        "stack": "torch-eager",
        "optimizer": "adamw",
        "steps": 100,
    }
    return {**facts, **changes}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model of which an estimate is kept."""
    path = tmp_path / "wide.py"
    path.write_text(MODEL)
    origin = origin_of(parse_model_spec(str(path)), Question(), folder=tmp_path, offers=None)
    Store().keep(make_ranked_estimate(), inputs_hash="a", origin=origin)
    return path


def keep(model: Path, run_id: str, micro_batch: int, seconds: float, **changes: Any) -> None:
    kept = record(micro_batch, model, measured={"step_time_s": seconds}, **changes)
    assert keep_step(
        Store(),
        kept,
        run=run_id,
        workload=workload_key(parse_model_spec(str(model))),
        plan_key=f"{A100} | p4de.24xlarge | 1 | mb{micro_batch}",
        now=lambda: NOW,
    )


def predicted(model: Path, micro_batch: int, choice: CurveChoice = USUAL_CURVES) -> float:
    """Return what is predicted of a run, seconds."""
    path = model.with_name(f"run-{micro_batch}.jsonl")
    path.write_text(json.dumps(record(micro_batch, model, measured={"step_time_s": 1.0})) + "\n")
    (timed,) = RecordedRuns([path], curve_choice=choice, profiler=once).timed()
    return timed.seconds()


@pytest.fixture
def slower(model: Path, tmp_path: Path) -> Iterator[Path]:
    """Keep five runs whose kernels take 1.2 times as long as the embedded curves say."""
    embedded = own_record(A100, USUAL_CURVES)
    assert embedded is not None
    file = tmp_path / "truth.json"
    file.write_text(json.dumps(scaled(embedded, 1.2)))
    truth = CurveChoice(given=(file,))
    for i, micro_batch in enumerate((4096, 8192, 16384, 4096, 8192)):
        keep(model, f"run-{i}", micro_batch, predicted(model, micro_batch, truth))
    yield model


def test_runs_that_are_slower_move_the_kernels_and_say_so(slower: Path, gpuplan_home: Path) -> None:
    before = predicted(slower, 8192)
    answer = api.calibrate_from_store(now=lambda: NOW)
    (found,) = answer.accelerators
    assert (found.accelerator, found.runs, len(found.configurations)) == (A100, 5, 3)
    assert found.factor == pytest.approx(1.2, rel=0.004)
    assert found.mape_before is not None and found.mape_before > 0.05
    assert found.mape_after is not None and found.mape_after < 0.01
    assert found.mape_held_out is not None and found.mape_held_out < 0.01
    path = gpuplan_home / "data" / "curves" / f"{A100}.json"
    assert found.path == str(path) and found.kept_as is None
    said = json.loads(path.read_text())
    assert said["measurement"]["factor"] == found.factor
    assert "5 runs of your own" in said["sources"][-1]
    measured = found.configurations[1].measured_s
    assert predicted(slower, 8192) == pytest.approx(measured, rel=0.01)
    assert before < 0.95 * measured


def test_what_is_right_already_is_not_written_again(slower: Path, capsys) -> None:
    assert run(["calibrate", "--from-store"]) == 0
    said = capsys.readouterr().out
    assert "All kernel times × 1." in said and "Curves: " in said  # noqa: RUF001
    assert run(["calibrate", "--from-store", "--format", "json"]) == 0
    again = StoreCalibration.model_validate_json(capsys.readouterr().out)
    (found,) = again.accelerators
    assert found.path is None or (found.mape_after or 0) < 0.005


def test_a_file_that_was_there_is_kept_beside(slower: Path, gpuplan_home: Path) -> None:
    path = gpuplan_home / "data" / "curves" / f"{A100}.json"
    path.parent.mkdir(parents=True)
    embedded = own_record(A100, USUAL_CURVES)
    assert embedded is not None
    path.write_text(json.dumps({**embedded, "version": "mine"}))
    (found,) = api.calibrate_from_store(name="A100-80GB-SXM", now=lambda: NOW).accelerators
    assert found.kept_as == f"{path}.before"
    assert read_curve_file(path.with_name(f"{path.name}.before")).version == "mine"
    assert json.loads(path.read_text())["measurement"]["base"]["version"] == "mine"


def test_too_few_runs_say_what_is_needed_and_write_nothing(
    model: Path, gpuplan_home: Path, capsys
) -> None:
    with pytest.raises(GpuplanError, match="none is kept"):
        api.calibrate_from_store()
    keep(model, "run-1", 4096, 0.5)
    keep(model, "two-nodes", 4096, 0.5, accelerators=16, per_node=8)
    keep(model, "here", 4096, 0.5, accelerator="cpu")
    assert run(["calibrate", "--from-store"]) == 1
    said = capsys.readouterr().err
    assert "1 of the 5 runs that are needed, in 1 of 3 different models or plans" in said
    assert "several nodes" in said and "processor" in said
    assert "To fix: needed are 5 runs of one node" in said
    assert not (gpuplan_home / "data" / "curves").exists()


def test_a_model_that_has_changed_says_nothing(slower: Path) -> None:
    slower.write_text(MODEL + "# another\n")
    with pytest.raises(GpuplanError, match="no kept estimate is of its model as it is now"):
        api.calibrate_from_store()


def test_steps_that_no_rate_explains_move_nothing(model: Path, gpuplan_home: Path) -> None:
    for i, micro_batch in enumerate((4096, 8192, 16384, 4096, 8192)):
        keep(model, f"run-{i}", micro_batch, 5 * predicted(model, micro_batch))
    (found,) = api.calibrate_from_store().accelerators
    assert found.path is None and "do not explain these steps" in (found.why_not or "")
    assert not (gpuplan_home / "data" / "curves").exists()


def test_options_that_measure_contradict_it(model: Path, tmp_path: Path, capsys) -> None:
    assert run(["calibrate", "--from-store", "--quick"]) == 2
    assert "--from-store measures nothing, and --quick is given" in capsys.readouterr().err
    with pytest.raises(UsageError, match="each accelerator has its own"):
        api.calibrate_from_store(out=tmp_path / "mine.json")
