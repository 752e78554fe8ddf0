"""Other ways of paying for the machines of a report."""

from dataclasses import replace

import pytest
from answers import make_plan, make_run

from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.plan.payment import BuyingWay, WaysToPay
from gpuplan.planner.plan.plan import Plan
from tests.support.projects import MADE, make_books, make_project, make_run_cost

TWO = {
    name: {"model": "a", "tokens": 1, "runs": {"seeds": seeds}}
    for name, seeds in (("a", 2), ("b", 3))
}


def ways_of(plan: Plan) -> WaysToPay:
    by_the_hour = BuyingWay(way="on-demand", usd_per_hour=2.0)
    year = BuyingWay(way="committed", term_years=1.0, usd_per_hour=1.0)
    return WaysToPay(plan_id=plan.id, ways=(by_the_hour, year))


def test_experiments_on_the_same_machines_share_their_rows() -> None:
    cost = replace(make_run_cost(), plan=make_plan(run=make_run()))
    books = make_books(make_project(experiments=TWO), a=cost, b=cost)
    report = build_report(books, MADE, ways_of=ways_of)
    assert [(row.way.way, row.experiments) for row in report.ways] == [
        ("on-demand", ("a", "b")),
        ("committed", ("a", "b")),
    ]
    hours = sum(row.accelerator_hours for row in report.experiments)
    expected = hours * cost.nodes / cost.accelerators
    assert [row.node_hours for row in report.ways] == pytest.approx([expected, expected])
    plain = build_report(books, MADE)
    assert plain.ways == ()
    assert plain.total == report.total, "they are in no sum"


def test_hours_of_a_machine_have_no_other_ways() -> None:
    books = make_books(make_project(experiments=TWO))
    assert all(one.chosen().plan is None for one in books.planned)
    assert build_report(books, MADE, ways_of=ways_of).ways == ()
