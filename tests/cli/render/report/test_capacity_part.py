"""Accelerators over time in a report: ranges, what there is, when runs wait, what is committed."""

from decimal import Decimal

from budget_reports import bare_report, empty_report, small_report
from capacity_reports import DELAY_DAYS, HAVE

from gpuplan.cli.render.report import capacity
from gpuplan.cli.render.report.charts.charts import CHARTS
from gpuplan.cli.render.report.sections import sections
from gpuplan.cli.render.report.table import render_table
from gpuplan.planner.budget.report.report import BudgetReport


def plentiful() -> BudgetReport:
    """Return a report of a project that does not say how many accelerators there are."""
    report = small_report()
    assert report.capacity is not None
    needs = tuple(one.model_copy(update={"have": None}) for one in report.capacity.needs)
    found = report.capacity.model_copy(update={"have": {}, "needs": needs})
    return report.model_copy(update={"capacity": found})


def headings(report: BudgetReport) -> list[str]:
    return [column.heading for column in capacity.accelerators_table(report).columns]


def ids(report: BudgetReport) -> list[str]:
    return [section.id for section in sections(report)]


def test_a_month_has_its_range_and_what_there_is_of_a_kind() -> None:
    report = small_report()
    table = capacity.accelerators_table(report)
    assert [row[2] for row in table.rows] == [use.hours for use in report.accelerators]
    ranges = [row[3:6] for row in table.rows]
    assert ranges == [(use.peak, use.peak - 8, use.peak + 8) for use in report.accelerators]
    scarce = next(iter(report.capacity.have)) if report.capacity else ""
    there = [row[7] for row in table.rows]
    assert there == [HAVE if use.accelerator == scarce else None for use in report.accelerators]


def test_columns_without_a_figure_are_left_out() -> None:
    wanted = ["Month", "Accelerator", "Accelerator-hours", "Most at one time"]
    assert headings(plentiful()) == [*wanted, "Likely at least", "Likely at most", "On average"]
    assert headings(bare_report()) == [*wanted, "On average"]
    assert capacity.accelerators_table(empty_report()).rows == ()


def test_a_month_in_which_runs_only_wait_is_shown_too() -> None:
    """Nothing is wanted in it, and what was put off still runs."""
    report = small_report()
    assert report.capacity is not None
    last = report.capacity.needs[-1]
    later = last.model_copy(update={"month": last.month.plus(40), "peak": 0, "used": 5.0})
    found = report.capacity.model_copy(update={"needs": (*report.capacity.needs, later)})
    table = capacity.accelerators_table(report.model_copy(update={"capacity": found}))
    assert len(table.rows) == len(report.accelerators) + 1
    assert table.rows[-1][0] == str(later.month) and table.rows[-1][2:4] == (0.0, 0)
    total = table.total_texts()
    assert total is not None and total[2] != "unknown"


def test_runs_that_wait_are_told_from_those_that_go_on() -> None:
    report = small_report()
    late = [row[-1] for row in capacity.times_table(report).rows]
    assert late == [DELAY_DAYS * (number % 2) for number in range(len(report.experiments))]
    spec = CHARTS["capacity"][1](report)
    assert spec is not None
    waits, runs = (layer["data"]["values"] for layer in spec["layer"])
    names = [row.name for row in report.experiments]
    assert [row["name"] for row in waits] == names[1::2]
    assert [row["name"] for row in runs] == names
    begins = {row["name"]: row["begin"] for row in runs}
    assert all(row["end"] == begins[row["name"]] for row in waits)


def test_the_part_is_that_of_a_project_which_says_what_there_is() -> None:
    assert "capacity" in ids(small_report()) and "capacity" not in ids(plentiful())
    assert capacity.intro(plentiful()) == "" and CHARTS["capacity"][1](plentiful()) is None
    assert "capacity" not in ids(bare_report())


def test_a_commitment_is_beside_the_same_on_demand() -> None:
    (row,) = capacity.commitments_table(small_report()).rows
    assert row[0] == "aws us-east-1 p5.48xlarge" and row[2] == "1 from 2027-01-01"
    assert row[5] < row[6]  # type: ignore[operator]


def test_terms_of_all_lengths_are_beside_those_of_one() -> None:
    (row,) = capacity.mixes_table(small_report()).rows
    assert row[1] == "1 for 3 years from 2027-01-01, 2 for 1 year from 2027-04-01"
    assert row[3:] == (Decimal("291000.5"), Decimal("298000.25"), Decimal("361000.75"))
    assert capacity.mixes_table(bare_report()).rows == ()


def test_the_screen_says_what_it_means_for_the_runs() -> None:
    assert any("likely ends" in line.plain for line in render_table(small_report(), width=100))
    assert not any("likely ends" in line.plain for line in render_table(plentiful(), width=100))
