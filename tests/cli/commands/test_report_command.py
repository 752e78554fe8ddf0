"""`gpuplan report` on a project with a real model, and what it answers to nonsense."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import pytest

from gpuplan.cli.main import run

PROJECT = """\
name: study
owner: Ada
start: 2027-01
months: 3
defaults: {provider: "aws, gcp"}
experiments:
  small:
    model: mlp.py
    steps: 20k
    global_batch: 1024
    runs: {seeds: 2}
  node: {provider: aws, instance: p4d.24xlarge, hours: 10, after: [small]}
extras:
  - {name: licence, usd: 10}
limits: {total: 5000}
"""
MACHINE = """\
name: study
start: 2027-01
months: 3
experiments:
  node: {provider: aws, instance: p4d.24xlarge, hours: 10}
limits: {total: 5000}
"""
MLP = """\
import torch


def build_model(width=2048):
    layers = [torch.nn.Linear(256, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)]
    return torch.nn.Sequential(*layers)


def make_batch(batch_size=64):
    return torch.randn(batch_size, 256), torch.randint(0, 10, (batch_size,))


def compute_loss(model, batch):
    inputs, labels = batch
    return torch.nn.functional.cross_entropy(model(inputs), labels)
"""


@pytest.fixture
def machine_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a project of a fixed machine, which needs no trace, and be in it."""
    (tmp_path / "gpuplan.yaml").write_text(MACHINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a project and its model, and be in it."""
    (tmp_path / "gpuplan.yaml").write_text(PROJECT)
    (tmp_path / "mlp.py").write_text(MLP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_project_is_reported_in_every_format_with_the_same_figures(folder: Path, capsys) -> None:
    assert run(["report", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    total = Decimal(str(report["total"]["usd"]))
    assert [row["name"] for row in report["experiments"]] == ["small", "node"]
    assert report["experiments"][0]["runs"] == 2
    assert total == sum(Decimal(str(row["usd"])) for row in report["entries"])
    assert report["budget_usd"] == report["total"]["usd"]
    assert report["snapshot_date"] and report["project"]["file"] == "gpuplan.yaml"

    assert run(["report", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert sum(Decimal(row["usd"]) for row in rows) == total

    for form in ("table", "markdown", "html"):
        assert run(["report", "--format", form]) == 0
        assert f"${total:,.2f}" in capsys.readouterr().out

    # The plans are kept, so that one of them can be launched or reported alone.
    plan = report["experiments"][0]["plan_id"]
    assert run(["report", plan, "--format", "json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["experiments"][0]["run_usd"] == report["experiments"][0]["run_usd"]


def test_a_file_is_written_and_the_first_sentence_is_said(machine_folder: Path, capsys) -> None:
    assert run(["report", "-o", "report.md"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.strip().endswith(".") and "study takes $" in said.err
    assert (machine_folder / "report.md").read_text().startswith("## Budget of study")


def test_a_limit_that_must_hold_ends_with_exit_code_4(machine_folder: Path, capsys) -> None:
    text = MACHINE.replace("{total: 5000}", "{total: 5, on_exceed: fail}")
    (machine_folder / "gpuplan.yaml").write_text(text)
    assert run(["report", "-o", "report.json"]) == 4
    assert "Over the limit: total is $" in capsys.readouterr().err
    assert json.loads((machine_folder / "report.json").read_text())["limits"][0]["is_over"]


def test_made_anew_it_says_what_moved_since_the_earlier_report(
    machine_folder: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPLAN_HOME", str(machine_folder / "home"))
    assert run(["report", "--reprice"]) == 2
    assert "none of it is kept" in capsys.readouterr().err
    assert run(["report", "--format", "json"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert before["moved"] is None
    file = machine_folder / "gpuplan.yaml"
    file.write_text(MACHINE.replace("hours: 10", "hours: 20"))
    assert run(["report", "--reprice", "--format", "json"]) == 0
    after = json.loads(capsys.readouterr().out)
    causes = [one for row in after["moved"]["experiments"] for one in row["causes"]]
    more = Decimal(str(after["budget_usd"])) - Decimal(str(before["budget_usd"]))
    assert more > 0
    assert sum(Decimal(str(one["usd"])) for one in causes) == more
    assert after["summary"][1].startswith(f"Since the report of {before['generated_at'][:10]}: $")

    # What is kept has no comparison in it: it is the same when it is asked for again.
    assert run(["report", "--as-of", after["generated_at"][:10], "--format", "json"]) == 0
    kept = json.loads(capsys.readouterr().out)
    assert (kept["moved"], kept["budget_usd"]) == (None, after["budget_usd"])
    for form in ("table", "markdown", "html"):
        file.write_text(MACHINE.replace("hours: 10", f"hours: {30 + len(form)}"))
        assert run(["report", "--reprice", "--format", form]) == 0
        assert "ince the report of 20" in capsys.readouterr().out


def test_templates_are_written_in_their_formats(machine_folder: Path, capsys) -> None:
    assert run(["report", "--template", "grant", "-o", "request.html"]) == 0
    page = (machine_folder / "request.html").read_text()
    assert "Estimate of compute, storage and other resources" in page
    capsys.readouterr()
    assert run(["report", "--template", "chargeback", "-q"]) == 0
    assert capsys.readouterr().out.startswith("## Charges of study")
    assert run(["report", "--format", "csv", "--template", "calculator", "-q"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["item"] for row in rows][:1] == ["p4d.24xlarge"]
    assert rows[0]["service"] == "Amazon EC2"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["report", "--template", "grant", "--format", "json"], 2, "is not written as json"),
        (["report", "--template", "grant", "-o", "r.xlsx"], 2, "use --format markdown or html"),
        (["report", "--template", "invoice"], 2, "invoice"),
        (["report", "nothing.yaml"], 2, "Cannot read nothing.yaml"),
        (["report", "zzzz"], 2, "No kept plan has an id that begins with 'zzzz'"),
        (["report", "gpuplan.yaml", "zzzz"], 2, "gpuplan.yaml is a file"),
        (["report", "--format", "xlsx"], 2, "name a file: --out-file"),
        (["report", "-o", "report.pdf"], 2, "writes no .pdf files"),
        (["report", "--format", "pdf"], 2, "pdf"),
    ],
)
def test_nonsense_ends_in_one_message(machine_folder: Path, capsys, words, code, said) -> None:
    assert run(words) == code
    message = capsys.readouterr().err
    assert said in message
    assert "Traceback" not in message


@pytest.mark.slow
def test_a_project_that_init_writes_is_reported_with_the_model_it_writes(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", "--project"]) == 0
    assert "gpuplan report gpuplan.yaml" in capsys.readouterr().out
    assert run(["init", "--project"]) == 2
    assert run(["init"]) == 0
    assert run(["report", "--format", "json", "-q"]) == 0
    printed = capsys.readouterr().out
    report = json.loads(printed[printed.index("{\n") :])
    assert [row["name"] for row in report["experiments"]] == ["sweep", "final"]
    assert report["experiments"][0]["runs"] == 4


def test_without_a_project_file_it_says_how_to_write_one(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["report"]) == 2
    assert "There is no gpuplan.yaml here." in capsys.readouterr().err


def test_an_experiment_at_fault_is_named(machine_folder: Path, capsys) -> None:
    (machine_folder / "gpuplan.yaml").write_text(PROJECT)
    assert run(["report"]) == 2
    assert "small: " in capsys.readouterr().err
    (machine_folder / "gpuplan.yaml").write_text(MACHINE.replace("p4d.24xlarge", "p4d.23xlarge"))
    assert run(["report"]) == 2
    said = capsys.readouterr().err
    assert "node: Nobody sells p4d.23xlarge" in said and "Did you mean p4d.24xlarge" in said


@pytest.mark.slow
def test_an_experiment_that_fits_nowhere_ends_with_exit_code_3(folder: Path, capsys) -> None:
    text = PROJECT.replace("steps: 20k", "steps: 20k\n    budget: $0.0001")
    (folder / "gpuplan.yaml").write_text(text)
    assert run(["report"]) == 3
    assert "small: no plan is feasible" in capsys.readouterr().err
