"""The first page of a report, in words."""

import pytest

from gpuplan.cli.render.report.formats.grant import grant
from gpuplan.cli.render.report.formats.html import render_html
from gpuplan.cli.render.report.formats.markdown import render_markdown
from gpuplan.cli.render.report.table import render_table
from gpuplan.cli.render.report.words import first_page
from gpuplan.planner.budget.report.build import build_report
from tests.support.projects import MADE, make_books, make_options_books, make_project


def test_the_first_page_leaves_out_what_stands_below_it_and_json_has_all() -> None:
    found = build_report(make_options_books(limits={"total": "10"}), MADE)
    below = [one.text for one in found.options if not one.is_planned]
    below += [line for line in found.summary if line.startswith("Over the limit: total is")]
    assert len(below) == 3 and set(below) < set(found.summary)
    shown = first_page(found)
    assert shown == [line for line in found.summary if line not in below]
    assert shown[0] == found.summary[0] and "It buys 1 run" in " ".join(shown)


@pytest.mark.parametrize(("given", "said"), [("12.5%", "12.5 %"), ("0.125%", "0.125 %")])
def test_a_contingency_is_printed_as_it_is_given(given: str, said: str) -> None:
    report = build_report(make_options_books(contingency=given), MADE)
    assert f"With {said} for what nobody planned" in report.summary[0]
    table = "".join(str(one) for one in render_table(report, width=100))
    pages = {"table": table, "markdown": render_markdown(report), "html": render_html(report)}
    assert all(said in text.replace("&nbsp;", " ") for text in pages.values())
    assert next(one.value for one in report.assumptions if one.name == "contingency") == said
    assert any(said in one for one in grant(report).lead)


def test_what_a_file_says_of_failed_runs_and_prices_is_printed_as_it_is_given() -> None:
    retry = {"failed_share": "2.5%", "mean_progress_at_failure": "12.25%"}
    project = make_project(
        price_trend="-12.25%", experiments={"a": {"model": "a", "tokens": 1, "retry": retry}}
    )
    found = {one.name: one.value for one in build_report(make_books(project), MADE).assumptions}
    assert found["failed runs begun again: a"] == "2.5 % fail, 12.25 % of the way on average"
    assert found["price trend a year"] == "-12.25 %"
