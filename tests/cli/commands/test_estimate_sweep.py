"""`gpuplan estimate --param layers=12,24`: one line for each value."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from answers import make_ranked_estimate, make_unworked_estimate

from gpuplan import api
from gpuplan.api import param_sweep
from gpuplan.catalog.errors import UserFileError
from gpuplan.cli.main import run
from gpuplan.planner.plan.answer.estimate import Estimate

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = Path(__file__).parents[3] / "docs" / "schema" / "sweep-1.0.json"
COMMAND = ["estimate", "model.py", "--param", "layers=12,24,96", "--param", "hidden=64"]


@pytest.fixture(autouse=True)
def made_answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Estimate]:
    answers = {"answer": make_ranked_estimate()}

    def read_inputs(model: str, *, params: dict[str, Any], **_: Any) -> str:
        assert params["hidden"] == 64
        if params["layers"] == 96:
            raise UserFileError("model.py:3: too deep", fix="correct model.py.")
        return "inputs"

    monkeypatch.setattr(param_sweep, "read_inputs", read_inputs)
    monkeypatch.setattr(param_sweep, "estimate", lambda *_, **__: answers["answer"])
    monkeypatch.setattr(api, "keep", lambda *_, **__: None)
    return answers


@pytest.mark.parametrize("width", [80, 140])
def test_the_table(golden: Callable[[Path, str], None], width: int, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(COMMAND) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    golden(GOLDEN / f"estimate-sweep-{width}.txt", out)


def test_batches_that_a_rule_made_different_are_said(monkeypatch, capsys) -> None:
    answer = make_ranked_estimate()
    asked, batches = answer.question, iter((256, 512))
    assert asked is not None

    def of_a_rule(*_: Any, **__: Any) -> Estimate:
        update = {"source": "rule", "samples": next(batches), "rule": "published runs"}
        batch = asked.global_batch.model_copy(update=update)
        plans = [p.model_copy(update={"global_batch": batch.samples}) for p in answer.plans]
        question = asked.model_copy(update={"global_batch": batch})
        return answer.model_copy(update={"question": question, "plans": tuple(plans)})

    monkeypatch.setattr(param_sweep, "estimate", of_a_rule)
    monkeypatch.setenv("COLUMNS", "140")
    assert run(COMMAND) == 0
    out = capsys.readouterr().out
    assert "--global-batch sets one for all" in out and "  512 " in out


def test_the_prices_of_a_sweep_are_dated(capsys) -> None:
    assert run(COMMAND) == 0
    assert " · prices of 20" in capsys.readouterr().out


def test_without_an_amount_of_work_there_are_rates(made_answers, monkeypatch, capsys) -> None:
    made_answers["answer"] = make_unworked_estimate()
    monkeypatch.setenv("COLUMNS", "120")
    assert run(COMMAND) == 0
    out = capsys.readouterr().out
    assert "$ per 1M tokens" in out and "tokens/s" in out and "not in these sums" not in out


def test_json_is_as_its_schema_says(capsys) -> None:
    assert run([*COMMAND, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert answer["values"] == {"layers": [12, 24, 96]}
    assert [row["params"]["layers"] for row in answer["sweep"]] == [12, 24, 96]
    assert answer["sweep"][2]["why_not"].startswith("model.py:3: too deep")
    assert answer["sweep"][0]["plan"]["id"] == make_ranked_estimate().best.id  # pyright: ignore[reportOptionalMemberAccess]


def test_csv_has_a_line_for_each_value(capsys) -> None:
    assert run([*COMMAND, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["params.layers"] for row in rows] == ["12", "24", "96"]
    assert rows[0]["plan.id"] and not rows[2]["plan.id"]


def test_markdown_has_a_table_and_the_reasons(capsys) -> None:
    assert run([*COMMAND, "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("### ")
    assert "| 96 | ? | failed |" in out
    assert "- layers=96: model.py:3: too deep To fix: correct model.py." in out


def test_where_no_value_has_a_plan_the_exit_code_says_so(made_answers, capsys) -> None:
    none = make_ranked_estimate().model_copy(update={"plans": (), "recommended": None})
    made_answers["answer"] = none
    assert run(COMMAND) == 3
    assert "no plan" in capsys.readouterr().out
    assert run(["estimate", "model.py", "--param", "layers=96,96.0", "--param", "hidden=64"]) == 1


@pytest.mark.parametrize("words", [["--explain", "1"], ["--pareto"], ["--trace", "t.json"]])
def test_what_is_about_one_answer_is_refused(words: list[str], capsys) -> None:
    assert run([*COMMAND, *words]) == 2
    assert f"{words[0]} is about one answer" in capsys.readouterr().err
