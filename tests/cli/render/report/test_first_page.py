"""The first page of a report, in words."""

from gpuplan.cli.render.report.words import first_page
from gpuplan.planner.budget.report.build import build_report
from tests.support.projects import MADE, make_options_books


def test_the_first_page_leaves_out_what_stands_below_it_and_json_has_all() -> None:
    found = build_report(make_options_books(limits={"total": "10"}), MADE)
    below = [one.text for one in found.options if not one.is_planned]
    below += [line for line in found.summary if line.startswith("Over the limit: total is")]
    assert len(below) == 3 and set(below) < set(found.summary)
    shown = first_page(found)
    assert shown == [line for line in found.summary if line not in below]
    assert shown[0] == found.summary[0] and "It buys 1 run" in " ".join(shown)
