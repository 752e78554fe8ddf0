"""`gpuplan launch` obeys the limits of a project's file, and says which file it is."""

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from gpuplan import api
from gpuplan.catalog.errors import LimitError
from gpuplan.cli.main import run
from gpuplan.launcher.prepare.prepared import LaunchAnswer
from gpuplan.launcher.prepare.request import LaunchRequest, parse_outputs
from gpuplan.launcher.skypilot import prices
from gpuplan.planner.plan.plan import Plan

OUTPUTS = ("--outputs", "s3://results/team")
PROJECT = """\
name: Net study
owner: Ada
start: 2027-01
months: 6
experiments:
  main: {{model: net.py, tokens: 1B}}
limits:
  {limits}
"""
"""A launch of the fixture's plan costs $66.01 at worst."""


def write_project(limits: str, path: str = "gpuplan.yaml") -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(PROJECT.format(limits=limits))
    return file


def launched(plan: Plan, *words: str) -> list[str]:
    return ["launch", plan.id, *OUTPUTS, "-y", "--detach", *words]


def test_the_file_in_this_folder_is_obeyed_and_said(plan: Plan, engine: FakeEngine, capsys) -> None:
    write_project("month: 100\n  run: 70\n  on_exceed: fail")
    assert run(launched(plan)) == 0
    said = capsys.readouterr().err.splitlines()
    i = said.index("  project             Net study, as gpuplan.yaml says")
    month = said[i + 2].strip()
    assert said[i + 1].strip() == "run: $66.01 of at most $70.00 (gpuplan.yaml:9)"
    assert month.startswith("month 2") and month.endswith(
        "$66.01 of at most $100.00, $0.00 without this launch (gpuplan.yaml:8)"
    )
    assert engine.tasks[0]["resources"]["labels"]["gpuplan-project"] == "net-study"
    assert run(launched(plan)) == 4
    said = capsys.readouterr().err
    spent = re.search(
        r"\$100\.00 \(gpuplan\.yaml:8\): \$(\S+) is spent, open launches may cost \$(\S+) more",
        said,
    )
    assert spent is not None and float(spent[1]) + float(spent[2]) == pytest.approx(66.01)
    assert "this one adds $66.01 at worst: $132.02 in all." in said
    assert "To fix: hold this launch to what is left with --max-cost 33.99" in said
    assert len(engine.tasks) == 1


def test_its_guard_holds_a_launch_to_what_the_limits_count(
    plan: Plan, engine: FakeEngine, capsys
) -> None:
    write_project("total: 100\n  on_exceed: fail")
    assert run(launched(plan)) == 0
    (path,) = Path("gpuplan-launches").glob("*/job/guard.json")
    assert json.loads(path.read_text())["max_cost_usd"] == 66.01


@pytest.mark.parametrize(
    ("max_cost", "held_usd", "said"),
    [
        ("400", 66.01, "before it costs $66.01, its worst case, as limits count it"),
        ("60", 60.0, "before it costs $60.00, --max-cost"),
    ],
)
def test_its_guard_holds_a_launch_to_what_is_counted_below_its_own_cap(
    plan: Plan, engine: FakeEngine, capsys, max_cost: str, held_usd: float, said: str
) -> None:
    words = ["--max-cost", max_cost, "--month-limit", "100"]
    assert run(launched(plan, *words)) == 0
    assert said in capsys.readouterr().err
    (path,) = Path("gpuplan-launches").glob("*/job/guard.json")
    assert json.loads(path.read_text())["max_cost_usd"] == held_usd
    (launch,) = json.loads(_history(capsys))["launches"]
    assert launch["reserved_usd"] == held_usd


def test_without_limits_its_own_cap_holds(plan: Plan, engine: FakeEngine) -> None:
    assert run(launched(plan, "--max-cost", "400")) == 0
    (path,) = Path("gpuplan-launches").glob("*/job/guard.json")
    assert json.loads(path.read_text())["max_cost_usd"] == 400.0


def test_warn_is_printed_and_launched(plan: Plan, engine: FakeEngine, capsys) -> None:
    write_project("run: 60")
    assert run(launched(plan)) == 0
    said = capsys.readouterr().err
    assert "Warning: Over the limit of run, $60.00 (gpuplan.yaml:8): this launch may cost" in said
    (path,) = Path("gpuplan-launches").glob("*/job/guard.json")
    assert json.loads(path.read_text())["max_cost_usd"] is None


def test_a_dry_run_has_the_limits_in_its_json_and_writes_nothing(plan: Plan, capsys) -> None:
    write_project("total: 1k\n  owners: {Team A: 80}")
    words = ["launch", plan.id, *OUTPUTS, "--dryrun", "--owner", "team-a"]
    assert run([*words, "--format", "json"]) == 0
    answer = LaunchAnswer.model_validate(json.loads(capsys.readouterr().out))
    assert answer.project == "Net study"
    assert [(one.name, one.line, one.is_over) for one in answer.limits] == [
        ("owner Team A", 9, False),
        ("total", 8, False),
    ]
    (owner, total) = answer.limits
    assert float(owner.adds_usd or 0) == 66.01 and total.limit_usd == 1000
    assert not Path("gpuplan-launches").exists()


def test_a_dry_run_beyond_a_limit_is_refused_as_the_launch_would_be(plan: Plan, capsys) -> None:
    write_project("run: 60\n  on_exceed: fail")
    assert run(["launch", plan.id, *OUTPUTS, "--dryrun"]) == 4
    assert capsys.readouterr().out == ""
    assert run(["launch", plan.id, *OUTPUTS, "--dryrun", "--max-cost", "55"]) == 0


@pytest.mark.parametrize("named", ["study/gpuplan.yaml", "study/", "./study"])
def test_a_file_elsewhere_is_named(plan: Plan, named: str, capsys) -> None:
    write_project("run: 60\n  on_exceed: fail", "study/gpuplan.yaml")
    words = ["launch", plan.id, *OUTPUTS, "--dryrun"]
    assert run(words) == 0
    assert run([*words, "--project", "study"]) == 0, "a word is a name"
    assert run([*words, "--project", named]) == 4
    assert "(study/gpuplan.yaml:8)" in capsys.readouterr().err


def test_another_projects_name_is_not_held_by_the_file_here_and_that_is_said(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    write_project("run: 60\n  on_exceed: fail")
    assert run(launched(plan, "--project", "other")) == 0
    said = capsys.readouterr().err
    assert "Note: the limits of gpuplan.yaml are not checked: it is of the project" in said
    assert run(launched(plan, "--project", "net study")) == 4
    monkeypatch.setenv("GPUPLAN_PROJECT", "other")  # A setting is no word on the command line.
    assert run(launched(plan)) == 4


def test_a_file_that_is_wrong_is_said_with_its_line(plan: Plan, capsys) -> None:
    write_project("month: much")
    words = ["launch", plan.id, *OUTPUTS, "--dryrun"]
    assert run(words) == 2
    assert "gpuplan.yaml:8: limits.month" in capsys.readouterr().err
    assert run([*words, "--project", "other"]) == 0
    assert "are not checked: gpuplan.yaml:8" in capsys.readouterr().err
    assert run([*words, "--project", "nowhere.yaml"]) == 2
    assert "Cannot read nowhere.yaml" in capsys.readouterr().err


def test_a_price_that_rose_since_the_dry_run_is_refused_before_it_is_asked(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    write_project("run: 70\n  on_exceed: fail")
    monkeypatch.setattr(prices, "skypilot_prices", lambda _task: [Decimal("43.92")])
    assert run(launched(plan)) == 4
    assert "this launch may cost $132.02 at worst" in capsys.readouterr().err
    assert engine.tasks == [] and not Path("gpuplan-launches").exists()


def test_a_run_goes_on_within_the_limits_that_the_file_has_then(
    plan: Plan, engine: FakeEngine, capsys
) -> None:
    file = write_project("total: 100\n  on_exceed: fail")
    assert run(launched(plan)) == 0
    (launch,) = json.loads(_history(capsys))["launches"]
    assert launch["project_file"] == str(file.resolve())
    assert run(["down", launch["run"]]) == 0
    file.write_text(PROJECT.format(limits="total: 50\n  on_exceed: fail"))
    assert run(["resume", launch["run"], "--detach", "-y"]) == 4
    assert f"limit of total, $50.00 ({file.resolve()}:8)" in capsys.readouterr().err
    file.write_text(PROJECT.format(limits="total: 50"))
    assert run(["resume", launch["run"], "--detach", "-y"]) == 0
    assert "Over the limit of total, $50.00" in capsys.readouterr().err
    assert run(["down", launch["run"]]) == 0
    file.unlink()
    assert run(["resume", launch["run"], "--detach", "-y"]) == 0
    assert "is gone: its limits are not checked" in capsys.readouterr().err


def test_the_python_api_obeys_the_same_limits(plan: Plan, engine: FakeEngine) -> None:
    write_project("total: 100\n  on_exceed: fail", "study/gpuplan.yaml")
    request = LaunchRequest(outputs=parse_outputs(OUTPUTS[1]))
    first, second = (api.launch(plan.id, request, project_file="study") for _ in range(2))
    assert [one.name for one in first.limits] == ["total"]
    context = api.launches.context(engine=engine)
    api.launches.start(context, first)
    # The second was prepared before the first was kept: the store looks again.
    with pytest.raises(LimitError, match=r"study/gpuplan\.yaml:8"):
        api.launches.start(context, second)


def _history(capsys) -> str:
    capsys.readouterr()
    assert run(["history", "--format", "json"]) == 0
    return capsys.readouterr().out
