"""One report says the same in every format, and its sums are those of its lines to the cent."""

import csv
import io
import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache

import pytest
from budget_reports import (
    bare_report,
    empty_report,
    hostile_report,
    large_report,
    make_report,
    small_report,
)
from openpyxl import load_workbook

from gpuplan.cli.render.report.figures import usd
from gpuplan.cli.render.report.sections import sections
from gpuplan.cli.render.report.table import render_table
from gpuplan.cli.render.report.tables.tables import added
from gpuplan.cli.render.report.write import SUFFIXES, as_text, as_xlsx, format_of
from gpuplan.planner.budget.report.report import BudgetReport

MAKERS = [small_report, large_report, hostile_report, bare_report]


@cache
def page_of(make: Callable[[], BudgetReport]) -> str:
    """Return the page of a report, whose charts take a second."""
    return as_text(make(), "html")


def amounts(text: str) -> set[str]:
    return set(re.findall(r"\$[\d,]+\.\d\d(?!\d)", text.replace("&nbsp;", " ")))


@pytest.mark.parametrize("make", MAKERS)
def test_the_total_and_the_budget_are_the_same_everywhere(make) -> None:
    report: BudgetReport = make()
    texts = [page_of(make), as_text(report, "md")]
    texts.append("\n".join(line.plain for line in render_table(report, width=100)))
    for text in texts:
        assert {usd(report.total.usd), usd(report.budget_usd)} <= amounts(text)
        assert {usd(option.total.usd) for option in report.options} <= amounts(text)
    read = json.loads(as_text(report, "json"))
    assert BudgetReport.model_validate(read) == report
    ledger = csv.DictReader(io.StringIO(as_text(report, "csv")))
    assert sum(Decimal(row["usd"]) for row in ledger) == report.total.usd
    focus = csv.DictReader(io.StringIO(as_text(report, "focus")))
    assert sum(Decimal(row["BilledCost"]) for row in focus) == report.total.usd
    book = load_workbook(io.BytesIO(as_xlsx(report)), data_only=True)
    assert book["Summary"]["B4"].value == float(report.total.usd)


@pytest.mark.parametrize("make", [small_report, hostile_report, bare_report])
def test_every_table_is_the_same_in_html_and_markdown(make) -> None:
    report = make()
    html, markdown = page_of(make), as_text(report, "md")
    for section in sections(report):
        for part in section.parts:
            # Markdown of this size shows 40 rows of a table.
            for row in [*part.table.texts()[:40], part.table.total_texts() or []]:
                for cell in row:
                    if cell.startswith("$"):
                        assert cell in html and cell in markdown, (part.table.id, cell)


@pytest.mark.parametrize("make", MAKERS)
def test_every_sum_is_that_of_its_rows(make) -> None:
    report = make()
    totals = {
        part.table.id: added([row[1] for row in part.table.rows])
        for section in sections(report)
        for part in section.parts
        if part.table.id in ("months", "by-experiment", "by-owner", "by-provider")
    }
    assert set(totals.values()) == {report.total.usd}
    budget = next(p.table for s in sections(report) for p in s.parts if p.table.id == "budget")
    assert added([row[1] for row in budget.rows]) == report.budget_usd


def test_the_ending_of_a_file_names_its_format() -> None:
    assert {format_of(f"a/b{ending.upper()}") for ending in SUFFIXES} == {
        "md",
        "csv",
        "json",
        "html",
        "xlsx",
    }
    assert format_of("report.pdf") is None


@pytest.mark.parametrize("make", [empty_report, lambda: make_report(["a"] * 1, months=1)])
def test_nothing_and_nearly_nothing_have_a_report_too(make) -> None:
    report = make()
    for form in ("md", "csv", "json", "focus", "html"):
        assert as_text(report, form).endswith("\n")
    assert as_xlsx(report)
    assert render_table(report, width=80)


def test_many_experiments_stay_readable() -> None:
    report = make_report([f"experiment {index}" for index in range(200)], months=12)
    html = as_text(report, "html")
    assert len(html.encode()) < 700_000
    assert "experiment 199" in html
