"""Documents made from a report: a request for credits, charges by owner, calculator lines."""

import csv
import io
import re
from decimal import Decimal
from inspect import getsource

import pytest
from budget_reports import (
    bare_report,
    empty_report,
    hostile_report,
    large_report,
    make_report,
    small_report,
)

from gpuplan.cli.render.report.figures import usd
from gpuplan.cli.render.report.formats.calculator import calculator_lines
from gpuplan.cli.render.report.formats.grant import MET, UNANSWERED, grant
from gpuplan.cli.render.report.tables.grant_tables import quarters_table, resources_table
from gpuplan.cli.render.report.tables.tables import Table, added
from gpuplan.cli.render.report.write import TEMPLATE_FORMATS, as_template
from gpuplan.planner.budget.report import assumptions

MAKERS = [small_report, large_report, hostile_report, bare_report]
PAIRS = [(name, form) for name, forms in TEMPLATE_FORMATS.items() for form in forms]


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def table_of(report, name: str) -> Table:
    found = [one for passage in grant(report).passages for one in passage.tables]
    return next(one for one in found if one.id == name)


@pytest.mark.parametrize(("template", "form"), PAIRS)
@pytest.mark.parametrize("make", [*MAKERS, empty_report])
def test_every_template_is_written_whatever_the_report(make, template, form) -> None:
    text = as_template(make(), template, form)
    assert text.endswith("\n")
    assert "\u202e" not in text or form == "csv"
    if form != "csv":
        assert "<script" not in text
    if form == "markdown":
        assert "](javascript" not in text.replace("\\](javascript", "")
        assert len(text) < 65_000


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("template", ["chargeback", "calculator"])
def test_the_csv_adds_up_to_the_cent(make, template: str) -> None:
    report = make()
    rows = rows_of(as_template(report, template, "csv"))
    assert sum(Decimal(row["usd"]) for row in rows) == report.total.usd


def test_charges_are_those_of_the_report_by_owner_and_month() -> None:
    report = small_report()
    rows = rows_of(as_template(report, "chargeback", "csv"))
    assert list(rows[0])[:4] == ["owner", "month", "experiment", "name"]
    for column, sums in (("owner", report.by_owner), ("month", report.by_month)):
        for one in sums:
            amounts = [Decimal(row["usd"]) for row in rows if row[column] == one.name]
            assert sum(amounts) == one.usd
    page = as_template(report, "chargeback", "html")
    for one in report.by_owner:
        assert usd(one.usd) in page and f"Lines of {one.name}" in page
    assert f"The contingency of {usd(report.contingency_usd)} is in no charge" in page


@pytest.mark.parametrize("make", MAKERS)
def test_the_tables_of_a_request_add_up_to_the_report(make) -> None:
    report = make()
    for table in (resources_table(report), quarters_table(report)):
        assert added([row[-1] for row in table.rows]) == report.total.usd
    hours = added([row[-2] for row in quarters_table(report).rows])
    assert float(hours or 0) == pytest.approx(sum(one.hours for one in report.accelerators))
    headings = [column.heading for column in table_of(report, "work").columns]
    place = headings.index("Accelerator-hours")
    total = added([row[place] for row in table_of(report, "work").rows])
    assert float(total or 0) == pytest.approx(report.accelerator_hours)


def test_a_request_says_what_is_asked_for_and_what_for() -> None:
    report = small_report()
    text = as_template(report, "grant", "markdown")
    for part in (
        usd(report.budget_usd),
        usd(report.total.usd),
        *(row.name for row in report.experiments),
        "2027-01 to 2027-03",
        "not from the number of people",
        "https\\://arxiv.org/abs/2410.21680",
        "Taxes.",
        "p5.48xlarge",
    ):
        assert part in text


def test_a_longer_project_says_what_falls_into_the_twelve_months_of_a_grant() -> None:
    report = large_report()
    first = sum((one.usd for one in report.by_month[:12]), Decimal(0))
    assert f"{usd(first)} of the planned cost falls" in as_template(report, "grant", "markdown")
    assert "the first 12 of" not in as_template(small_report(), "grant", "markdown")


def test_stored_amounts_are_terabytes_or_unknown_never_nothing() -> None:
    report = small_report()
    stored = [one for one in report.entries if one.kind == "storage" and one.provider == "aws"]
    total = sum((one.quantity for one in stored), Decimal(0)) / 1000
    table = resources_table(report)
    place = [column.heading for column in table.columns].index("TB-months stored")
    assert {row[0]: row[place] for row in table.rows}["stored data (aws)"] == total
    by_run = [one.model_copy(update={"unit": "run"}) for one in stored]
    changed = report.model_copy(update={"entries": tuple(by_run)})
    assert [row[1] for row in resources_table(changed).rows] == ["unknown"]


def test_a_risk_without_an_answer_is_left_to_the_team_and_answers_fit_our_sentences() -> None:
    source = getsource(assumptions)
    assert all(part in source for part, _ in MET)
    assert UNANSWERED in [row[1] for row in table_of(small_report(), "risks").rows]


def test_calculator_lines_give_our_price_back() -> None:
    report = small_report()
    lines = [one for one in calculator_lines(report) if one.hours_per_month is not None]
    assert {one.service for one in lines} == {"Amazon EC2", "Compute Engine", None}
    for one in lines:
        assert one.quantity and one.hours_per_month is not None
        assert one.hours_per_month <= 730
        hours = one.quantity * one.hours_per_month * one.months
        # Hours are rounded to a hundredth, for each machine and month.
        bound = one.unit_usd * one.quantity * one.months * Decimal("0.005") + 1
        assert abs(hours * one.unit_usd - one.usd) <= bound
    lambda_lines = [one for one in calculator_lines(report) if one.provider == "lambda"]
    assert lambda_lines and all(one.calculator is None for one in lambda_lines)


def test_formulas_in_names_are_texts() -> None:
    for template in ("chargeback", "calculator"):
        for row in rows_of(as_template(hostile_report(), template, "csv")):
            assert not re.match(r"[=+@]", "".join(row.values())[:1])


def test_many_owners_stay_a_comment() -> None:
    owners = [f"owner {index}" for index in range(40)]
    report = make_report([f"e{index}" for index in range(80)], months=24, owners=owners)
    assert len(as_template(report, "chargeback", "markdown")) < 65_000
