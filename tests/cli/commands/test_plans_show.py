"""`gpuplan plans` and `gpuplan show`: what was kept is listed and found again."""

import csv
import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from answers import make_estimate, make_plan, make_ranked_estimate, make_unworked_estimate
from rich.cells import cell_len

from gpuplan import api
from gpuplan.cli.main import run
from gpuplan.cli.render.plans.plans import render_kept
from gpuplan.cli.render.text.columns import to_text
from gpuplan.launcher.store.estimates import Store
from gpuplan.planner.plan.answer.estimate import Estimate
from gpuplan.planner.plan.plan import Plan

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def kept() -> Estimate:
    estimate = make_ranked_estimate()
    Store().keep(estimate, inputs_hash="a")
    return estimate


@pytest.mark.parametrize("width", [80, 110])
def test_the_list(width: int, golden: Callable[[Path, str], None]) -> None:
    older = make_unworked_estimate().model_copy(
        update={"generated_at": "2026-11-18T09:30:00+00:00"}
    )
    lines = render_kept([make_ranked_estimate(), older, make_estimate()], top=2, width=width)
    assert max(line.cell_len for line in lines) <= width
    golden(GOLDEN / f"plans-{width}.txt", to_text(lines, colour=False))


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("words", [["plans"], ["show"]])
def test_no_line_is_wider_than_the_screen(
    kept: Estimate, words: list[str], columns: int, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ids = [kept.plans[0].id] if words == ["show"] else []
    assert run([*words, *ids]) == 0
    assert max(map(cell_len, capsys.readouterr().out.splitlines())) <= columns


def test_nothing_kept_says_what_to_do(capsys) -> None:
    assert run(["plans"]) == 0
    assert capsys.readouterr().out.startswith("No estimate is kept yet.")


def test_nothing_kept_is_an_empty_list_in_json(capsys) -> None:
    assert run(["plans", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema_version": "1.0", "estimates": []}


def test_json_holds_every_kept_plan(kept: Estimate, capsys) -> None:
    run(["plans", "--format", "json", "--top", "1"])
    (printed,) = json.loads(capsys.readouterr().out)["estimates"]
    assert Estimate.model_validate(printed) == kept


def test_a_plan_that_cannot_be_read_is_named_and_the_others_are_listed(
    kept: Estimate, capsys
) -> None:
    broken, *others = (plan.id for plan in kept.plans)
    with sqlite3.connect(Store().path) as connection:
        connection.execute("UPDATE plans SET content = '{}' WHERE id = ?", (broken,))
    assert run(["plans", "--top", "100"]) == 0
    captured = capsys.readouterr()
    assert f"Left out. The kept plan {broken} cannot be read" in captured.err
    assert "To fix: ask its question again with `gpuplan estimate`" in captured.err
    assert broken not in captured.out and all(one in captured.out for one in others)
    assert run(["show", broken]) == 1
    assert "To fix: ask its question again" in capsys.readouterr().err


def test_the_newest_come_first_up_to_the_limit(kept: Estimate, capsys) -> None:
    newer = make_estimate(make_plan(), generated_at="2026-11-21T10:00:00+00:00")
    Store().keep(newer, inputs_hash="b")
    run(["plans", "--limit", "1"])
    out = capsys.readouterr().out
    assert out.startswith("2026-11-21 10:00")
    assert "2026-11-20" not in out


def test_show_finds_a_plan_by_the_beginning_of_its_id(kept: Estimate, capsys) -> None:
    plan = kept.plans[1]
    assert run(["show", plan.id[:6]]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Plan 2 · {plan.id} · 8 × H100-80GB-SXM")
    assert "Where the numbers come from" in out


def test_show_says_where_the_catalogue_has_it_from(kept: Estimate) -> None:
    sources = api.sources(kept.plans[0])
    assert "A100" in sources["kernel curves"]
    assert all(sources.values())
    assert set(sources) == {"start-up", "kernel curves", "device", "instance", "offer"}


def test_show_says_where_torch_has_faster_attention_than_it_calls(kept: Estimate) -> None:
    plan = kept.plans[0]
    on_b300 = plan.model_copy(
        update={"offer": plan.offer.model_copy(update={"accelerator": "B300"})}
    )
    assert "FlashAttention-2" in api.sources(on_b300)["attention"]


def test_show_in_json_is_the_plan(kept: Estimate, capsys) -> None:
    run(["show", kept.plans[0].id, "--format", "json"])
    assert Plan.model_validate_json(capsys.readouterr().out) == kept.plans[0]


@pytest.mark.parametrize("prefix", ["zzzz", "a", "%"])
def test_show_of_an_unknown_plan_is_a_usage_error(kept: Estimate, prefix: str, capsys) -> None:
    assert run(["show", prefix]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "To fix:" in err


def test_csv_has_a_row_for_every_kept_plan_with_its_question(kept: Estimate, capsys) -> None:
    assert run(["plans", "--format", "csv", "--top", "1"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["id"] for row in rows] == [plan.id for plan in kept.plans]
    assert rows[0]["question"] == " · ".join(kept.asked_text)
    assert float(rows[0]["step_time_s.low"]) == kept.plans[0].step_time_s.low


def test_csv_of_nothing_kept_is_its_heading(capsys) -> None:
    assert run(["plans", "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("generated_at,model,parameters,question,limits,id,")


def test_markdown_has_a_table_of_the_first_plans_of_each_estimate(kept: Estimate, capsys) -> None:
    assert run(["plans", "--format", "markdown", "--top", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("### ") and "gpt2 · 124M parameters" in out
    assert out.count("\n| `") == 2
    assert f"and {len(kept.plans) - 2} more" in out


def test_one_plan_as_markdown(kept: Estimate, golden: Callable[[Path, str], None], capsys) -> None:
    assert run(["show", kept.plans[3].id, "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"### Plan {kept.plans[3].id}: ")
    golden(GOLDEN / "show.md", out)


def test_show_without_an_id_is_the_recommended_plan_of_the_last_estimate_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    answer = make_ranked_estimate()
    assert answer.best is not None and answer.best != answer.plans[0]
    kept: list[Path] = []

    def newest_of(_: Store, folder: Path) -> SimpleNamespace | None:
        kept.append(folder)
        return SimpleNamespace(estimate=answer, origin=None) if folder == tmp_path else None

    monkeypatch.setattr(Store, "newest_of", newest_of)
    monkeypatch.chdir(tmp_path)
    assert run(["show", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == answer.best.id
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert run(["show"]) == 2
    assert "no estimate was made in this folder" in capsys.readouterr().err
    assert kept == [tmp_path, tmp_path / "other"]
