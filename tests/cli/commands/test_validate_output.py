"""`gpuplan validate` as a person and as a program reads it."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuplan.cli.main import run
from gpuplan.cli.render.validate import RENDERERS, render_csv, render_json
from gpuplan.planner.plan.plan import Estimated
from gpuplan.planner.validation.errors import Observation, Validation, prediction_errors
from gpuplan.planner.validation.folds import PROTOCOLS, Protocol

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def answer() -> Validation:
    ran = Observation(
        id="ran",
        source_group="lab",
        accelerator="L4",
        stack="torch-eager",
        configuration="one",
        assumed=("grad_accum=1 (global batch ÷ micro-batches)", "optimizer=the model file's own"),
        measured_step_time_s=0.5,
        predicted_step_time_s=Estimated(value=0.55, low=0.5, high=0.6, basis="analytic"),
        ideal_step_time_s=0.2,
        measured_memory_bytes=8 * 2.0**30,
        predicted_memory_bytes=Estimated(
            value=7.6 * 2**30, low=7 * 2.0**30, high=8.5 * 2**30, basis="analytic"
        ),
        verdict_measured="fits",
        verdict_predicted="fits",
    )
    skipped = Observation(
        id="left-out",
        source_group="lab",
        accelerator="L4",
        stack="torch-eager",
        configuration="two",
        skipped="precision 'int8' is not predicted yet",
        measured_step_time_s=1.0,
    )
    return prediction_errors([ran, skipped])


def test_json_of_two_runs(answer: Validation, golden: Callable[[Path, str], None]) -> None:
    text = render_json(answer, 5)
    golden(GOLDEN / "validate.json", text)
    assert set(json.loads(text)) >= {"schema_version", "rows", "summary"}


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_text_of_two_runs(
    form: str, answer: Validation, golden: Callable[[Path, str], None]
) -> None:
    golden(GOLDEN / f"validate.{form}.txt", RENDERERS[form](answer, 5))


def test_small_memory_has_a_unit_in_which_it_is_not_nothing(answer: Validation) -> None:
    """It was "measured 0.0 GiB, predicted 0.0 GiB"."""
    memory = answer.rows[1].model_copy(update={"measured": 20 * 2.0**20, "predicted": 2.0**24})
    text = RENDERERS["table"](answer.model_copy(update={"rows": (memory,)}), 1)
    assert "(measured 20.0 MiB, predicted 16.0 MiB)" in text


def test_csv_has_every_row_and_column(answer: Validation) -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(answer, 0))))
    assert [row["id"] for row in rows] == ["ran", "ran", "left-out"]
    assert float(rows[0]["error"]) == pytest.approx(0.1)
    assert rows[0]["assumed"].count(";") == 1
    assert rows[2]["predicted"] == ""


def test_a_bad_line_ends_with_2_and_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"model": "decoder.py"\n')
    assert run(["validate", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{path}:1: not JSON" in captured.err
    assert "Traceback" not in captured.err


def test_a_missing_file_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_runs_that_cannot_be_predicted_are_skipped_not_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        {"id": "unknown-device", "accelerator": "XPU-9000", "model": "decoder.py"},
        {"id": "no-file", "accelerator": "L4", "model": "nowhere.py"},
        {"id": "fp6", "accelerator": "L4", "model": "decoder.py", "precision": "fp6"},
    ]
    path = tmp_path / "runs.jsonl"
    common = {"micro_batch": 1, "measured": {"step_time_s": 1.0}}
    path.write_text("\n".join(json.dumps(record | common) for record in records))
    assert run(["validate", str(path), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    reasons = {row["id"]: row["skipped"] for row in rows}
    assert "XPU-9000" in reasons["unknown-device"]
    assert "nowhere.py" in reasons["no-file"]
    assert "fp6" in reasons["fp6"]
    assert all(row["predicted"] is None for row in rows)


@pytest.mark.parametrize("hold_out", PROTOCOLS)
def test_what_was_held_out_is_named(
    hold_out: Protocol, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.jsonl"
    record = {"id": "x", "accelerator": "XPU-9000", "model": "decoder.py", "measured": {}}
    path.write_text(json.dumps(record))
    assert run(["validate", str(path), "--hold-out", hold_out, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["hold_out"] == hold_out
    assert run(["validate", str(path), "--hold-out", hold_out]) == 0
    assert f"without the run's {'fifth' if hold_out == 'configuration' else hold_out}" in (
        capsys.readouterr().out
    )
