"""`gpuplan diff`: plans, report files, project files and git revisions, and nonsense."""

from __future__ import annotations

import json
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_ranked_estimate

from gpuplan import api
from gpuplan.cli.main import run
from gpuplan.launcher.store.estimates import Store

PROJECT = """\
name: study
start: 2027-01
months: 3
experiments:
  node: {provider: aws, instance: p4d.24xlarge, hours: 10}
extras:
  - {name: licence, usd: 10}
"""
MORE = PROJECT.replace("hours: 10", "hours: 10, runs: {seeds: 3}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a project of a fixed machine, which needs no trace, and be in it."""
    (tmp_path / "gpuplan.yaml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def repository(folder: Path) -> Path:
    """Return the same as a git repository, the project below its top and committed."""
    study = folder / "study"
    study.mkdir()
    (study / "gpuplan.yaml").write_text(PROJECT)
    (folder / "gpuplan.yaml").unlink()
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    (study / "gpuplan.yaml").write_text(MORE)
    (study / "untracked.txt").write_text("mine")
    return study


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    )
    return done.stdout


def test_a_kept_report_against_the_project_now(folder: Path, capsys) -> None:
    assert run(["report", "-o", "before.json", "--quiet"]) == 0
    (folder / "gpuplan.yaml").write_text(MORE)
    assert run(["diff", "before.json", "gpuplan.yaml"]) == 0
    said = capsys.readouterr().out
    assert "all of it because node runs 3 seeds instead of 1." in said.splitlines()[0]

    assert run(["diff", "before.json", ".", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in found["by_kind"]] == ["runs"]
    causes = [Decimal(str(one["usd"])) for row in found["experiments"] for one in row["causes"]]
    assert sum(causes) == Decimal(str(found["difference_usd"]))

    assert run(["diff", "before.json", "gpuplan.yaml", "-o", "diff.md"]) == 0
    text = (folder / "diff.md").read_text()
    assert text.startswith("**$") and "| node | $" in text


def test_a_project_since_a_revision_and_the_tree_stays_as_it_is(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(repository)
    before = git(repository, "status", "--porcelain"), git(repository, "stash", "list")
    index = (repository.parent / ".git" / "index").read_bytes()
    assert run(["diff", "--git", "HEAD"]) == 0
    said = capsys.readouterr().out
    assert "node runs 3 seeds instead of 1" in said.splitlines()[0]
    assert before == (git(repository, "status", "--porcelain"), git(repository, "stash", "list"))
    assert (repository.parent / ".git" / "index").read_bytes() == index
    assert (repository / "gpuplan.yaml").read_text() == MORE


def test_no_hook_of_the_repository_is_run(repository: Path, capsys) -> None:
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        hook = repository.parent / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {repository}/hooked\n")
        hook.chmod(0o755)
    assert run(["diff", str(repository), "--git", "HEAD"]) == 0
    assert not (repository / "hooked").exists()


def test_two_kept_plans_are_one_experiment_on_two_plans(capsys) -> None:
    answer = make_ranked_estimate()
    first, last, *rest = answer.plans
    assert last.whole_job is not None
    lines = [one.model_copy(update={"quantity": 99.0}) for one in last.whole_job.cost_lines]
    job = last.whole_job.model_copy(update={"cost_lines": tuple(lines)})
    last = last.model_copy(update={"whole_job": job})
    Store().keep(answer.model_copy(update={"plans": (first, last, *rest)}), inputs_hash="a")
    assert run(["diff", first.id, last.id, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["experiments"]] == [answer.workload.name]
    assert {one["kind"] for one in found["by_kind"]} <= {"plan", "price", "other", "work"}
    assert "is planned on" in found["headline"] or "is laid out" in found["headline"]


def test_two_kept_plans_of_two_models_say_so_first(capsys) -> None:
    answer = make_ranked_estimate()
    first, last, *_ = answer.plans
    assert last.whole_job is not None
    lines = [one.model_copy(update={"quantity": 99.0}) for one in last.whole_job.cost_lines]
    job = last.whole_job.model_copy(update={"cost_lines": tuple(lines)})
    last = last.model_copy(update={"whole_job": job})
    Store().keep(answer.model_copy(update={"plans": (first,)}), inputs_hash="a")
    other = answer.workload.model_copy(update={"name": "other", "parameters": 10**6})
    Store().keep(answer.model_copy(update={"plans": (last,), "workload": other}), inputs_hash="b")
    assert run(["diff", first.id, last.id, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["headline"].endswith(
        f" They train different models: {answer.workload.name},"
        f" {answer.workload.parameters_text}, and then other, {other.parameters_text}."
    )
    assert [row["name"] for row in found["experiments"]] == [f"{answer.workload.name} → other"]
    assert run(["diff", first.id, first.id, "--format", "json"]) == 0
    assert "different models" not in json.loads(capsys.readouterr().out)["headline"]


@pytest.mark.parametrize(
    ("limit", "code"), [("10%", 4), ("$1", 4), ("300%", 0), ("$100k", 0), ("0%", 4)]
)
def test_more_than_is_allowed_ends_with_exit_code_4(folder: Path, capsys, limit, code) -> None:
    run(["report", "-o", "before.json", "--quiet"])
    (folder / "gpuplan.yaml").write_text(MORE)
    assert run(["diff", "before.json", ".", "--fail-if-over", limit]) == code
    said = capsys.readouterr()
    assert ("Over the limit of --fail-if-over" in said.err) is (code == 4)
    # Cheaper is never over.
    run(["report", "-o", "after.json", "--quiet"])
    assert run(["diff", "after.json", "before.json", "--fail-if-over", limit]) == 0


def test_a_limit_is_not_kept_by_what_has_no_price(folder: Path, capsys) -> None:
    run(["report", "-o", "before.json", "--quiet"])
    now = json.loads((folder / "before.json").read_text())
    now["experiments"][0].update(run_usd=None, run_usd_low=None, run_usd_high=None)
    name = now["experiments"][0]["name"]
    now["entries"] = [one for one in now["entries"] if one["experiment"] != name]
    now["unpriced"] = [name]
    now["budget_usd"] = now["total"]["usd"] = "0.00"
    (folder / "after.json").write_text(json.dumps(now))
    words = ["diff", "before.json", "after.json", "--silent-below", "1000%"]
    assert run([*words, "--fail-if-over", "10%"]) == 5
    said = capsys.readouterr()
    assert f"--fail-if-over is kept: the price of {name} is not known." in said.err
    assert "unknown     unknown" in said.out and "≥ $0.00" in said.out
    assert run(words) == 0 and "Not known how much more" in capsys.readouterr().out


def test_causes_of_cents_beside_thousands_are_summed_up(folder: Path, capsys) -> None:
    (folder / "gpuplan.yaml").write_text(PROJECT.replace("hours: 10", "hours: 10000"))
    run(["report", "-o", "before.json", "--quiet"])
    project = PROJECT.replace("hours: 10", "hours: 20000").replace("usd: 10", "usd: 10.2")
    (folder / "gpuplan.yaml").write_text(project)
    assert run(["diff", "before.json", "."]) == 0
    assert "1 smaller cause: +$0.60." in capsys.readouterr().out


def test_a_small_change_is_silent_and_one_over_the_limit_is_not(folder: Path, capsys) -> None:
    run(["report", "-o", "before.json", "--quiet"])
    (folder / "gpuplan.yaml").write_text(PROJECT.replace("usd: 10", "usd: 10.2"))
    assert run(["diff", "before.json", ".", "--silent-below", "1%"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["diff", "before.json", ".", "--silent-below", "1%", "-o", "diff.md"]) == 0
    assert (folder / "diff.md").read_text() == ""
    words = ["diff", "before.json", ".", "--silent-below", "1%", "--fail-if-over", "$0.10"]
    assert run(words) == 4
    assert "licence" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diff"], "0 budgets are given; two are compared."),
        (["diff", "gpuplan.yaml"], "1 budget is given"),
        (["diff", "a", "b", "c"], "3 budgets are given"),
        (["diff", "a", "b", "--git", "HEAD"], "with --git it is one project file"),
        (["diff", "abcd1234", "--git", "HEAD"], "A git revision is of one project file"),
        (["diff", "nothing.json", "gpuplan.yaml"], "Cannot read nothing.json"),
        (["diff", "broken.json", "gpuplan.yaml"], "broken.json is no report"),
        (["diff", "list.json", "gpuplan.yaml"], "list.json is no report"),
        (["diff", "gpuplan.yaml", "zzzz"], "No kept plan has an id that begins with 'zzzz'"),
        (["diff", "gpuplan.yaml", "nothing.yaml"], "Cannot read nothing.yaml"),
        (["diff", "gpuplan.yaml", "--git", "HEAD"], "in no git repository"),
        (["diff", "a", "b", "--fail-if-over", "much"], "write 10% or $500"),
        (["diff", "a", "b", "--fail-if-over", "-5%"], "write 10% or $500"),
        (["diff", "a", "b", "--silent-below", "nan%"], "write 10% or $500"),
    ],
)
def test_nonsense_ends_in_one_message(folder: Path, capsys, words, said) -> None:
    (folder / "broken.json").write_text('{"schema_version": "1.0", "gpuplan')
    (folder / "list.json").write_text("[1, 2]")
    assert run(words) == 2
    message = capsys.readouterr().err
    assert said in message and "Traceback" not in message


@pytest.mark.parametrize("revision", ["nothing", "--help", "HEAD:gpuplan.yaml", "", "HEAD~9"])
def test_an_unknown_revision_is_said_to_be_none(repository: Path, capsys, revision) -> None:
    assert run(["diff", str(repository), f"--git={revision}"]) == 2
    assert "There is no git revision" in capsys.readouterr().err


def test_a_file_that_the_revision_has_not_is_named(repository: Path, capsys) -> None:
    (repository / "other.yaml").write_text(PROJECT)
    assert run(["diff", str(repository / "other.yaml"), "--git", "HEAD"]) == 2
    assert "HEAD has no file study/other.yaml." in capsys.readouterr().err


def test_a_report_of_a_later_major_version_is_refused(folder: Path, capsys) -> None:
    run(["report", "-o", "before.json", "--quiet"])
    text = (folder / "before.json").read_text().replace('"1.0"', '"2.0"', 1)
    (folder / "before.json").write_text(text)
    assert run(["diff", "before.json", "."]) == 2
    assert "is a report of version 2.0" in capsys.readouterr().err


def test_names_in_markdown_are_shown_and_never_act(folder: Path, capsys) -> None:
    run(["report", "-o", "before.json", "--quiet"])
    name = "<script>|@team**x**"
    (folder / "gpuplan.yaml").write_text(PROJECT.replace("node:", f"'{name}':"))
    assert run(["diff", "before.json", ".", "--format", "markdown"]) == 0
    text = capsys.readouterr().out
    assert "<script>" not in text and "@team" not in text and "**x**" not in text


def test_the_api_takes_reports_as_well(folder: Path) -> None:
    before = api.report("gpuplan.yaml")
    (folder / "gpuplan.yaml").write_text(MORE)

    found = api.diff(before, api.report("gpuplan.yaml"))
    assert found.before.name == "study" and found.by_kind[0].kind == "runs"
    with pytest.raises(api.GpuplanError, match="nothing to compare it with"):
        api.diff(before)
