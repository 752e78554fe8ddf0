"""A project file → a Project; what is wrong is said with its line."""

from decimal import Decimal
from pathlib import Path

import pytest

from gpuplan.api import read_project
from gpuplan.catalog.errors import UsageError

FILE = """\
name: fine-tuning study
owner: Ada
start: 2027-01
months: 6
funding:
  - {name: NAIRR, usd: 40k, kind: grant, expires: 2027-05-31, indirect: 10%}
defaults:
  provider: aws, gcp
  purchase: spot
experiments:
  pretrain:
    model: decoder.py
    params: {layers: 24, tied: true, name: x1}
    tokens: 30B
    global_batch: 0.5M-tokens
    deadline: 10d
    budget: $5,000
    runs: {seeds: 3}
  sweep:
    model: decoder.py
    tokens: 1B
    provider: azure
    runs: {grid: {lr: [1e-4, 3e-4], layers: [6, 12]}}
    after: [pretrain]
    retry: {failed_share: 10%}
  node:
    instance: p4d.24xlarge
    nodes: 2
    hours: 100
contingency: 15%
limits: {total: 60k, on_exceed: fail}
"""


def read(tmp_path: Path, text: str = FILE):
    file = tmp_path / "gpuplan.yaml"
    file.write_text(text, encoding="utf-8")
    return read_project(file)


def refused(tmp_path: Path, *changes: tuple[str, str]) -> str:
    text = FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    with pytest.raises(UsageError) as raised:
        read(tmp_path, text)
    return str(raised.value)


def test_amounts_are_read_as_people_write_them(tmp_path: Path) -> None:
    project = read(tmp_path)
    pretrain = project.experiments["pretrain"]
    assert pretrain.tokens == 30e9
    assert pretrain.deadline == 10 * 86400
    assert pretrain.budget == Decimal(5000)
    assert pretrain.params == {"layers": 24, "tied": True, "name": "x1"}
    assert project.funding[0].usd == Decimal(40_000)
    assert project.contingency == 0.15
    assert str(project.end) == "2027-06"


def test_defaults_hold_for_experiments_that_do_not_say_otherwise(tmp_path: Path) -> None:
    experiments = read(tmp_path).experiments
    assert experiments["pretrain"].provider == ("aws", "gcp")
    assert experiments["sweep"].provider == ("azure",)
    assert experiments["sweep"].purchase == "spot"


def test_hours_of_a_machine_have_the_defaults_that_say_where_and_no_others(tmp_path: Path) -> None:
    of_plans = (
        "  jurisdiction: eu\n  accelerator: H100\n  deadline: 3d\n  budget: 50\n"
        "  layout: fsdp8\n  compile: true\n  max_nodes: 4\n"
    )
    given = FILE.replace("  purchase: spot\n", f"  purchase: spot\n{of_plans}  nodes: '1, 4'\n")
    given = given.replace("    nodes: 2\n", "")
    node = read(tmp_path, given).experiments["node"]
    assert (node.provider, node.jurisdiction, node.purchase) == (("aws", "gcp"), ("eu",), "spot")
    assert (node.accelerator, node.deadline, node.budget, node.layout) == ((), None, None, ())
    assert (node.compile, node.max_nodes, node.nodes) == (None, None, ())
    assert read(tmp_path, given).experiments["sweep"].nodes == (1, 4)
    two = given.replace("nodes: '1, 4'", "nodes: 2")
    assert read(tmp_path, two).experiments["node"].nodes == (2,)


def test_a_grid_has_a_run_for_every_combination(tmp_path: Path) -> None:
    runs = read(tmp_path).experiments["sweep"].runs
    assert runs.grid == {"lr": (1e-4, 3e-4), "layers": (6, 12)}
    assert runs.count == 4


def test_a_folder_stands_for_the_file_in_it(tmp_path: Path) -> None:
    read(tmp_path)
    assert read_project(tmp_path).name == "fine-tuning study"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("tokens: 30B", "tokens: 30Q", 14, "experiments.pretrain.tokens: '30Q' is not a number"),
        ("retry:", "retri:", 25, "has no field 'retri'. Did you mean retry?"),
        ("failed_share:", "failed_shar:", 25, "Did you mean failed_share?"),
        ("[pretrain]", "[pretrian]", 24, "Did you mean pretrain?"),
        ("[pretrain]", "[sweep]", 24, "sweep comes after itself."),
        ("months: 6", "months: -6", 4, "months: '-6'"),
        ("months: 6", "months: 600", 1, "at most 120"),
        ("provider: aws", "provder: aws", 8, "Did you mean provider"),
        ("purchase: spot", "purchase: stolen", 9, "'stolen' is not taken"),
        ("usd: 40k", "usd: forty", 6, "'forty' is not an amount of US dollars"),
        ("usd: 40k", "usd: 1e400", 6, "'1e400' is too large; at most 1e+15 US dollars"),
        ("total: 60k", "total: 99999999999999999", 31, "is too large"),
        ("indirect: 10%", "indirect: 110%", 6, "'110%' is no share"),
        ("kind: grant", "kind: gift", 6, "'gift' is not taken"),
        ("kind: grant", "kind: credits", 6, "credits are of one provider"),
        ("expires: 2027-05-31", "expires: soon", 6, "'soon' is not taken"),
        ("tokens: 30B", "tokens: 30B\n    samples: 3", 12, "the amount of work is given twice"),
        ("tokens: 30B\n    ", "", 12, "it has no amount of work"),
        ("tokens: 30B", "epochs: 3", 12, "without dataset_size"),
        ("global_batch: 0.5M-tokens", "global_batch: big", 15, "'big' is not a number"),
        ("seeds: 3", "seeds: 100_001", 12, "it has 100,001 runs; at most 100,000"),
        ("nodes: 2", "nodes: 1e12", 27, "nodes is 1,000,000,000,000; at most 100,000"),
        ("seeds: 3", "seeds: 2.5", 18, "'2.5' is not a whole number"),
        ("lr: [1e-4, 3e-4]", "lr: []", 23, "lr has no values"),
        ("start: 2027-01", "start: Jan", 3, "'Jan' is not a month; write it as 2027-01"),
        ("contingency: 15%", "contingency: 15", 30, "'15' is no share from 0 to 1"),
        ("contingency: 15%", "price_trend: -150%", 30, "'-150%' is no share from -1 to 1"),
        ("nodes: 2", "nodes: 1,2", 27, "hours are of one machine"),
        ("hours: 100", "hours: 100\n    model: a.py", 27, "model and hours are given"),
        ("hours: 100", "hours: 100\n    tokens: 5", 27, "tokens is given, and there is no model"),
        ("hours: 100\n", "hours: 100\n    times: 3\n", 27, "times is given without every"),
        (
            "hours: 100",
            "hours: 100\n    layout: fsdp8",
            27,
            "layout is given, and there is no model",
        ),
        ("hours: 100", "hours: 100\n    compile: false", 27, "compile is given, and there is no"),
        ("hours: 100", "hours: 100\n    max_nodes: 3", 27, "hours are of `nodes` machines"),
        (
            "hours: 100",
            "hours: 100\n    deadline: 4d",
            27,
            "hours is 100, and deadline, the longest",
        ),
        ("hours: 100", "hours: 100\n    start: 2026-12", 30, "before the project does"),
        ("limits: {total: 60k", "limits: {totl: 60k", 31, "Did you mean total?"),
        ("name: fine-tuning study\n", "", 1, "the project has no name"),
        ("owner: Ada", "owner: &a Ada", 2, "anchors"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, said: str
) -> None:
    message = refused(tmp_path, (old, new))
    assert said in message
    assert f"gpuplan.yaml:{line}: " in message, message
    assert "To fix: " in message


@pytest.mark.parametrize("month", ["2026-12", "2027-07", "2031-01"])
@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("storage", "{name: data, gb: 100, usd_per_gb_month: 0.02, start: MONTH}"),
        ("egress", "{name: data, gb: 100, usd_per_gb: 0.09, month: MONTH}"),
        ("extras", "{name: licence, usd: 100, month: MONTH}"),
    ],
)
def test_a_cost_in_a_month_that_the_project_does_not_have_is_refused(
    tmp_path: Path, part: str, line: str, month: str
) -> None:
    with pytest.raises(UsageError) as raised:
        read(tmp_path, f"{FILE}{part}:\n  - {line.replace('MONTH', month)}\n")
    assert "gpuplan.yaml:33: " in str(raised.value)
    assert f"{month} is no month of the project, which goes from 2027-01 to 2027-06" in str(
        raised.value
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "idle:\n  - {provider: aws, instance: x, hours_per_month: 7440}",
            "at most 744; give `nodes`",
        ),
        ("storage:\n  - {name: x, gb: 1e17}", "less than or equal to 1000000000000"),
        ("storage:\n  - {name: x, gb: 1, usd_per_gb_month: 1e30}", "less than or equal to 1000000"),
        ("egress:\n  - {name: x, gb: 1, usd_per_gb: 1e30}", "less than or equal to 1000000"),
        (
            "currency: {code: EUR, per_usd: 1e30, date: 2026-11-01}",
            "less than or equal to 10000000",
        ),
    ],
)
def test_amounts_that_no_project_has_are_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(tmp_path, f"{FILE}{line}\n")
    assert said in str(raised.value)


def test_a_cost_in_the_first_and_in_the_last_month_is_taken(tmp_path: Path) -> None:
    extras = "".join(f"  - {{name: x, usd: 1, month: {one}}}\n" for one in ("2027-01", "2027-06"))
    assert len(read(tmp_path, f"{FILE}extras:\n{extras}").extras) == 2


GRID = "runs: {grid: {layers: [6, 12], lr: [1, 2]}}"


@pytest.mark.parametrize(
    ("fields", "other", "line", "said"),
    [
        (
            "ladder: [{name: x, tokens: 9}, {name: x, tokens: 8}]",
            "b",
            5,
            "called a/x: rung 1 of a (line 5) and rung 2 of a (line 5)",
        ),
        (
            "ladder: [{tokens: 9}]",
            "a/1",
            6,
            "called a/1: rung 1 of a (line 5) and experiment a/1 (line 6)",
        ),
        (
            f"tokens: 9, {GRID}",
            "a[layers=6]",
            6,
            "called a[layers=6]: experiment a with layers=6 (line 5) and experiment a[layers=6]",
        ),
    ],
)
def test_two_sets_of_runs_of_one_name_are_refused(
    tmp_path: Path, fields: str, other: str, line: int, said: str
) -> None:
    (tmp_path / "m.py").write_text("def build_model(layers=1): ...")
    text = (
        "name: study\nstart: 2027-01\nmonths: 1\nexperiments:\n"
        f"  a: {{model: m.py, {fields}}}\n"
        f"  {other}: {{model: m.py, tokens: 9}}\n"
    )
    with pytest.raises(UsageError) as raised:
        read(tmp_path, text)
    assert f"gpuplan.yaml:{line}: two sets of runs would be {said}" in str(raised.value)
    (tmp_path / "m.py").write_text("def build_model(): ...")
    if "grid" in fields:
        assert len(read(tmp_path, text).experiments) == 2


def test_a_value_that_a_grid_has_twice_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, ("layers: [6, 12]", "layers: [6, 12, 6]"))
    assert "gpuplan.yaml:23: experiments.sweep.runs.grid: layers has 6 twice; `seeds`" in said


def test_experiments_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    message = refused(tmp_path, ("runs: {seeds: 3}", "after: [sweep]"))
    assert "pretrain, sweep wait for each other" in message


@pytest.mark.parametrize(
    ("old", "new", "said", "allowed"),
    [
        ("contingency", "have: {H100: null}\ncontingency", "have.H100", "a value such as 64"),
        ("budget: $5,000", "budget:", "experiments.pretrain.budget", "such as $5,000"),
        ("purchase: spot", "purchase: ~", "defaults.purchase", "one of on-demand, spot, any"),
        ("limits: {total: 60k, on_exceed: fail}", "limits:", "limits", "(run, month, total, own"),
        ("on_exceed: fail", "on_exceed: null", "limits.on_exceed", "one of warn, fail"),
        ("total: 60k", "owners: {Ada: }", "limits.owners.Ada", "such as $5,000"),
        ("after: [pretrain]", "after: [null]", "experiments.sweep.after.0", "text"),
        ("provider: azure", "compile:", "experiments.sweep.compile", "true or false"),
        ("params: {layers: 24, tied: true, name: x1}", "params:", "pretrain.params", "names with"),
        ("owner: Ada", "owner:", "owner", "text"),
        ("usd: 40k", "usd: null", "funding.0.usd", "such as"),
        ("hours: 100", "hours: 100\n  later:", "experiments.later", "fields of it (owner, stage"),
        ("owner: Ada", "wrong:", "wrong", "a value"),
    ],
)
def test_a_null_is_refused_with_its_line_and_what_may_stand_there(
    tmp_path: Path, old: str, new: str, said: str, allowed: str
) -> None:
    message = refused(tmp_path, (old, new))
    text = FILE.replace(old, new, 1)
    last = new.splitlines()[-1] if "later" in new else new.splitlines()[0]
    line = next(i for i, one in enumerate(text.splitlines(), 1) if last in one)
    assert f"gpuplan.yaml:{line}: " in message
    assert f"{said} has no value (null)." in message
    with pytest.raises(UsageError) as raised:
        read(tmp_path, text)
    assert allowed in str(raised.value.fix)
    assert "leave it out" in str(raised.value.fix)


def test_a_null_among_params_is_a_value_as_on_the_command_line(tmp_path: Path) -> None:
    text = FILE.replace("tied: true", "tied: null").replace("lr: [1e-4, 3e-4]", "lr: [1e-4, null]")
    project = read(tmp_path, text)
    assert project.experiments["pretrain"].params["tied"] is None
    assert project.experiments["sweep"].runs.grid["lr"] == (1e-4, None)


def test_a_file_without_experiments_says_what_to_add(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="experiments: there are none; add at least one"):
        read(tmp_path, "name: x\nstart: 2027-01\nmonths: 2\nexperiments: {}\n")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Cannot read"):
        read_project(tmp_path / "none.yaml")
