"""Budgets with a price that nobody states, in every format that people read."""

from dataclasses import replace

import pytest

from gpuplan.cli.render.report.formats.html import render_html
from gpuplan.cli.render.report.formats.markdown import render_markdown
from gpuplan.cli.render.report.table import render_table
from gpuplan.cli.render.report.tables.money_tables import limits_table
from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.budget.report.report import BudgetReport
from tests.support.projects import MADE, make_books, make_project, make_run_cost


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


def test_what_has_no_price_is_planned_with_no_sum(report: BudgetReport) -> None:
    rows = {row[0]: row for row in limits_table(report).rows}
    assert rows["run of big"][1] is None
    assert rows["run of big"][-1] == "the price of big is not known"
    assert rows["run of a"][1] == 20 and rows["run of a"][-1] == "within"
