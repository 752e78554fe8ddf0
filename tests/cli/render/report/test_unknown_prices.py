"""Budgets with a price that nobody states, in every format that people read."""

import csv
import io
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from openpyxl import load_workbook

from gpuplan.cli.render.report.figures import usd
from gpuplan.cli.render.report.formats.csv import render_csv
from gpuplan.cli.render.report.formats.html import render_html
from gpuplan.cli.render.report.formats.markdown import render_markdown
from gpuplan.cli.render.report.formats.xlsx import render_xlsx
from gpuplan.cli.render.report.formats.xlsx_style import FORMATS
from gpuplan.cli.render.report.table import render_table
from gpuplan.cli.render.report.tables.money_tables import limits_table
from gpuplan.cli.render.report.words import beside_plan
from gpuplan.cli.render.report.write import as_template
from gpuplan.planner.budget.planned import OpenLine
from gpuplan.planner.budget.ranges import money_range
from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.budget.report.report import BudgetReport
from gpuplan.planner.budget.report.rows import MoneyRange
from tests.support.projects import (
    MADE,
    make_books,
    make_options_books,
    make_project,
    make_run_cost,
)


@pytest.fixture(scope="module")
def report() -> BudgetReport:
    experiments = {name: {"model": "a.py", "tokens": "1B"} for name in ("a", "big")}
    limits = {"total": "50", "run": "50", "on_exceed": "fail"}
    project = make_project(experiments=experiments, limits=limits, contingency="10%")
    none = replace(make_run_cost(), usd=None, usd_low=None, usd_high=None, lines=())
    return build_report(make_books(project, big=none), MADE)


def test_the_terminal_says_at_least_and_what_is_missing(report: BudgetReport) -> None:
    text = "\n".join(line.plain for line in render_table(report, width=100))
    assert "budget    at least $22.00" in text and "planned   at least $20.00" in text
    assert "The price of big is not known: it is in no sum, and the project costs more." in text
    assert "Not known whether 2 of 3 limits are kept: the price of big is not known." in text
    assert "is kept." not in text


def test_the_pages_say_so_too(report: BudgetReport) -> None:
    for text in (render_markdown(report), render_html(report)):
        assert "study takes at least $20.00" in text
        assert "at least $22.00" in text
        assert "The price of big is not known: it is in no sum" in text
        assert "Not known whether 2 of 3 limits are kept" in text
    assert "<strong>Limits not known.</strong>" in render_html(report)


@pytest.fixture(scope="module")
def in_part() -> BudgetReport:
    experiments = {name: {"model": "a.py", "tokens": "1B"} for name in ("a", "big")}
    limits = {"total": "50", "month": "50", "on_exceed": "fail"}
    project = make_project(experiments=experiments, limits=limits, contingency="10%")
    host = OpenLine(kind="accelerators", name="vCPUs", quantity=10.0, unit="instance-hour")
    return build_report(make_books(project, big=make_run_cost(open_lines=(host,))), MADE)


def test_what_leaves_a_part_out_is_marked_in_rows_and_sums(in_part: BudgetReport) -> None:
    text = "\n".join(line.plain for line in render_table(in_part, width=100))
    assert "budget    at least $44.00" in text
    assert "big                  ≥ $20.00" in text and "a                      $20.00" in text
    assert "2 of 2 limits are kept: the price of a part of big is not" in text
    markdown = render_markdown(in_part)
    assert "| 2027-01 | ≥ $40.00 | 100 % | $50.00 | not known |" in markdown
    assert "| **Total** | **≥ $40.00** |" in markdown
    assert "| big | ≥ $20.00 | 50 % |" in markdown and "| a | $20.00 | 50 % |" in markdown
    assert "≥ $40.00" in render_html(in_part)


def test_the_rows_say_what_has_no_price(in_part: BudgetReport) -> None:
    *_, last = csv.DictReader(io.StringIO(render_csv(in_part)))
    assert (last["experiment"], last["name"], last["quantity"]) == ("big", "vCPUs", "10.000000")
    assert (last["unit_usd"], last["usd"]) == ("", "")
    book = load_workbook(io.BytesIO(render_xlsx(in_part)))
    assert book["Summary"]["B4"].number_format.startswith('"≥ "')
    january = book["By month"][2]
    assert january[1].number_format.startswith('"≥ "')
    assert january[4].number_format.startswith('"≤ "'), "what is left of a limit is the most"
    assert book["By month"][3][4].number_format == FORMATS["usd"]
    ledger = [[cell.value for cell in row] for row in book["Ledger"].iter_rows()]
    assert ledger[-1][9:] == ["vCPUs", 10, "instance-hour", "unknown", "unknown"]
    formula = book["Summary"]["B4"].value
    assert f"$N${len(in_part.entries) + 1})" in formula


def test_an_option_is_compared_only_where_what_is_not_known_leaves_it() -> None:
    def of(amount: str, *, lower_bound: bool = False) -> MoneyRange:
        return money_range(Decimal(amount), np.zeros(1), lower_bound=lower_bound)

    assert of("8").change_text(of("5"), usd) == "$3.00 more"
    assert of("8", lower_bound=True).change_text(of("5"), usd) == "at least $3.00 more"
    assert of("3", lower_bound=True).change_text(of("5"), usd) is None
    assert of("3").change_text(of("5", lower_bound=True), usd) == "at least $2.00 less"
    assert of("8").change_text(of("5", lower_bound=True), usd) is None
    both = of("3", lower_bound=True), of("5", lower_bound=True)
    assert both[0].change_text(both[1], usd) is None
    assert both[0].change_text(both[1], usd, is_same_part=True) == "$2.00 less"


def test_options_compare_where_the_project_alone_has_lines_without_a_price() -> None:
    books = make_options_books(storage=[{"name": "corpus", "gb": "7"}])
    cheap, normal, fast = build_report(books, MADE).options
    assert "$16, $4.00 less" in cheap.text or "$4.00 less" in cheap.text
    assert beside_plan(fast, (cheap, normal, fast)).startswith("$40.00 more than planned")


def test_what_belongs_to_no_experiment_is_named_without_a_price_too() -> None:
    """ "the project  ≥ $0.00" stood there, and nobody saw of what."""
    project = make_project(storage=[{"name": "corpus", "gb": "7"}])
    text = "\n".join(
        line.plain for line in render_table(build_report(make_books(project), MADE), width=120)
    )
    assert "of no experiment: corpus (6 months)" in text


def test_a_request_says_at_least_of_the_months_for_which_credits_are_given() -> None:
    def asked(**fields: object) -> str:
        project = make_project(months=14, **fields)
        return as_template(build_report(make_books(project), MADE), "grant", "markdown")

    known = asked()
    assert "for 12 months: $20.00 of the planned cost" in known
    kept = {"name": "corpus", "gb": "7", "start": "2027-03"}
    assert "for 12 months: at least $20.00 of" in asked(storage=[kept])
    later = asked(storage=[{**kept, "start": "2028-01"}])
    assert "At least $20.00 is asked for" in later and "for 12 months: $20.00 of" in later


def test_a_limit_that_the_dearest_price_keeps_says_so_in_every_format() -> None:
    disks = OpenLine(
        kind="storage",
        name="disks",
        quantity=10.0,
        unit="GB-month",
        dearest_unit_usd=Decimal("0.3"),
    )
    project = make_project(limits={"total": "50", "month": "30", "owners": {"Ada": "30"}})
    report = build_report(make_books(project, a=make_run_cost(open_lines=(disks,))), MADE)
    kept = "All 3 limits are kept: month 2027-01 is at most $23.00 even at the dearest known price."
    text = "\n".join(line.plain for line in render_table(report, width=120))
    assert kept in text
    for page in (render_markdown(report), render_html(report)):
        assert kept in page.replace("\\$", "$")
        assert "within, at most $23.00 even at the dearest known price" in page.replace("\\$", "$")
    assert "| 2027-01 | ≥ $20.00 | 100 % | $30.00 | within |" in render_markdown(report)


def test_what_has_no_price_is_planned_with_no_sum(report: BudgetReport) -> None:
    rows = {row[0]: row for row in limits_table(report).rows}
    assert rows["run of big"][1] is None
    assert rows["run of big"][-1] == "the price of big is not known"
    assert rows["run of a"][1] == 20 and rows["run of a"][-1] == "within"
