"""`gpuplan capacity` of a project: when everything runs on the accelerators that there are."""

import json
from pathlib import Path

import pytest

from gpuplan.cli.main import run
from gpuplan.planner.capacity import order

GOLDEN = Path(__file__).parent / "golden"
PROJECT = """\
name: Foundation group
start: 2027-01
months: 12
defaults: {provider: aws, instance: p5.48xlarge}
experiments:
  scaling ladder: {hours: 300, nodes: 4}
  main run: {hours: 1000, nodes: 8, after: [scaling ladder], priority: 3}
  ablations: {hours: 40, runs: {seeds: 24}, parallel: 6}
  robotics: {hours: 500, nodes: 2, start: 2027-02}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "gpuplan.yaml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    # The same with and without scipy, and on a machine that has other work.
    monkeypatch.setattr(order, "_solved", lambda *_: "HiGHS is not asked here")
    return "gpuplan.yaml"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--offline",), "wanted"),
        (("--have", "H100:64"), "scarce"),
        (("--have", "H100:96"), "enough"),
    ],
)
def test_what_it_says(project: str, words: tuple[str, ...], name: str, capsys, golden) -> None:
    assert run(["capacity", project, *words]) == 0
    golden(GOLDEN / f"capacity-{name}.txt", capsys.readouterr().out)


def test_a_folder_is_its_project_and_markdown_has_both_tables(project: str, capsys) -> None:
    assert run(["capacity", ".", "--have", "h100-80gb-sxm:64", "--format", "markdown"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("With 64 ") and "| main run |" in said and "| 2027-02 |" in said


def test_json_and_csv_hold_the_same_jobs(project: str, capsys) -> None:
    assert run(["capacity", project, "--have", "H100:64", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["have"] == {"H100-80GB-SXM": 64}
    slips = {one["name"]: one["slips_days"] for one in found["jobs"]}
    assert slips["main run"] == 0 < slips["ablations"]
    assert run(["capacity", project, "--have", "H100:64", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("name,experiment,accelerator,")
    assert len(lines) == 1 + len(found["jobs"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--have", "H100"), "--have H100 is not of the form NAME:N"),
        (("--have", "H100:0"), "H100:0 is no accelerator"),
        (("--have", "A100:8"), "No run is planned on A100; runs are planned on H100"),
        (("--have", "H100:8,H100:9"), "--have H100 is given twice"),
        (("--have", "H100:8,h100-80gb-sxm:9"), "H100-80GB-SXM is given twice"),
        (("--have", "H100:48"), "main run: one run is planned on 64"),
        (("--have", "H999:8"), "H999"),
        (("--spot",), "gpuplan.yaml is a project"),
    ],
)
def test_what_is_wrong_is_said(project: str, words: tuple[str, ...], said: str, capsys) -> None:
    assert run(["capacity", project, *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_node_that_is_used_all_year_is_worth_a_commitment(project: str, capsys) -> None:
    text = PROJECT.replace("aws, instance: p5.48xlarge", "gcp, instance: a3-highgpu-8g")
    Path(project).write_text(text + "  service: {hours: 8000, nodes: 2}\n")
    assert run(["capacity", project]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "with nodes committed for 1 year (2 from 2027-01-01; used 91% of it" in said
    assert run(["capacity", project, "--have", "H100:96"]) == 0
    assert "committed" not in capsys.readouterr().out


def test_what_the_file_has_counts_unless_the_option_says_otherwise(project: str, capsys) -> None:
    Path(project).write_text(PROJECT + "have: {H100: 64}\n")
    assert run(["capacity", project]) == 0
    assert capsys.readouterr().out.startswith("With 64 × H100-80GB-SXM")  # noqa: RUF001
    assert run(["capacity", project, "--have", "H100:96"]) == 0
    assert capsys.readouterr().out.startswith("96 × H100-80GB-SXM are enough")  # noqa: RUF001


def test_what_a_project_has_and_does_not_use_is_left_out(project: str, capsys) -> None:
    Path(project).write_text(PROJECT + "have: {H100: 64, A100-80GB-SXM: 16}\n")
    assert run(["capacity", project, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["have"] == {"H100-80GB-SXM": 64}


def test_the_report_has_the_times_that_capacity_says(project: str, capsys) -> None:
    Path(project).write_text(PROJECT + "have: {H100: 64}\n")
    assert run(["capacity", project, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert run(["report", project, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["capacity"] == said
    assert report["summary"][1] == said["headline"]


def test_the_report_of_a_project_that_does_not_say_has_ranges_alone(project: str, capsys) -> None:
    assert run(["report", project, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["capacity"]["have"] == {} and report["capacity"]["needs"]
    assert report["capacity"]["headline"] not in report["summary"]


@pytest.mark.parametrize(
    ("have", "said"),
    [
        ("{A100: 8}", "No run is planned on A100"),
        ("{H100: 48}", "main run: one run is planned on 64"),
        ("{H100: 0}", "have.H100: '0' is not above zero"),
        ("{H100: -8}", "have.H100"),
        ("64", "have"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    project: str, have: str, said: str, capsys
) -> None:
    Path(project).write_text(PROJECT + f"have: {have}\n")
    for command in ("capacity", "report"):
        assert run([command, project]) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_have_is_of_a_project_alone(capsys) -> None:
    assert run(["capacity", "--accelerator", "H100:8", "--have", "H100:64"]) == 2
    assert "--have is what a project has" in capsys.readouterr().err


def test_a_project_that_is_not_there_is_said(tmp_path: Path, capsys) -> None:
    assert run(["capacity", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_terms_of_several_lengths_are_mixed_where_that_costs_less(
    project: str, capsys, require
) -> None:
    require("scipy", "which finds the mix")
    text = PROJECT.replace("aws, instance: p5.48xlarge", "gcp, instance: a3-highgpu-8g")
    text = text.replace("months: 12", "months: 48").replace(
        "hours: 300, nodes: 4}", "hours: 26000, nodes: 4}"
    )
    Path(project).write_text(text + "  service: {hours: 8000, nodes: 2, start: 2027-06}\n")
    assert run(["capacity", project]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 for 3 years from 2027-01-01" in said and "2 for 1 year from 2027-06-01" in said
    assert "with terms of one length from the project's begin on" in said
    assert run(["capacity", project, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (mix,) = found["mixes"]
    assert found["mixes_unknown"] is None
    assert float(mix["usd"]) < float(mix["one_length_usd"]) < float(mix["on_demand_usd"])
    assert {"begin": "2027-06-01", "term_years": 1.0, "nodes": 2} in mix["committed"]
