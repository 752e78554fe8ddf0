"""Launches against their plan: rows, and a variance that is taken apart exactly."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.planner.budget.planned import RunLine
from gpuplan.planner.budget.project.months import Month
from gpuplan.planner.budget.report.actual_rows import VarianceRow
from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.budget.report.matching import Launched
from gpuplan.planner.budget.report.report import BudgetReport
from gpuplan.planner.budget.report.spent import Spend, with_spent
from tests.support.projects import MADE, make_books, make_project, make_run_cost

MARCH = Month(2027, 3)


def planned(runs: int = 2) -> BudgetReport:
    """Return a report of runs of 10 h at $2, an hour of them their start, by plan p1."""
    project = make_project(
        experiments={"a": {"model": "a.py", "tokens": "1B", "runs": {"seeds": runs}}}
    )
    found = build_report(make_books(project), MADE)
    rows = tuple(row.model_copy(update={"plan_id": "p1"}) for row in found.experiments)
    return found.model_copy(update={"experiments": rows})


def spend(usd: str, launch: str = "net-1", **changes: Any) -> Spend:
    facts: dict[str, Any] = {
        "launch": launch,
        "launched": Launched(plan="p1"),
        "month": MARCH,
        "status": "succeeded",
        "has_ended": True,
        "has_succeeded": True,
        "usd": Decimal(usd),
        "lost_usd": Decimal(0),
        "idle_usd": Decimal(2),
        "node_hour_usd": Decimal(2),
        "billed_usd": None,
    }
    return Spend(**{**facts, **changes})


def variance(*spends: Spend, runs: int = 2) -> VarianceRow:
    (found,) = with_spent(planned(runs), spends).variances
    return found


def test_a_row_has_the_months_in_which_its_launch_ran() -> None:
    parts = {"2027-03": Decimal("20.004"), "2027-04": Decimal("0.996")}
    rows = with_spent(planned(), [spend("21", usd_by_month=parts), spend("9", "net-2")]).spent
    assert rows[0].usd_by_month == {"2027-03": Decimal("20.00"), "2027-04": Decimal("1.00")}
    assert rows[1].usd_by_month == {"2027-03": Decimal("9.00")}


def test_launches_of_its_plans_are_rows_and_others_are_not() -> None:
    found = with_spent(
        planned(), [spend("21"), spend("9", "net-2", launched=Launched(plan="other"))]
    )
    (row,) = found.spent
    assert (row.launch, row.experiment, row.usd, row.planned_usd) == ("net-1", "a", 21, 20)
    assert row.billed_usd is None and row.month == MARCH


def test_what_of_the_project_matches_nothing_is_scope_outside_the_plan() -> None:
    stray = spend("9", "net-2", launched=Launched(plan="other", is_of_project=True))
    failed = spend(
        "4", "net-3", launched=Launched(plan="other", is_of_project=True), has_succeeded=False
    )
    found = with_spent(planned(), [spend("21"), stray, failed])
    assert [(one.experiment, one.matched_by, one.planned_usd) for one in found.spent] == [
        ("a", "plan", 20),
        (None, None, 0),
        (None, None, 0),
    ]
    outside = found.variances[-1]
    assert (outside.experiment, outside.launches, outside.succeeded, outside.runs) == (
        None,
        2,
        1,
        0,
    )
    assert outside.spent_usd == outside.difference_usd == outside.scope_usd == 13
    assert (outside.planned_usd, outside.failures_usd, outside.speed_usd) == (0, 0, 0)


def test_an_open_launch_is_spent_and_no_variance_yet() -> None:
    found = with_spent(planned(), [spend("5", has_ended=False, has_succeeded=False)])
    assert found.spent[0].usd == 5 and found.variances == ()


def test_more_hours_are_speed_and_a_dearer_hour_is_price() -> None:
    found = variance(spend("24"))
    assert (found.planned_usd, found.difference_usd, found.speed_usd) == (20, 4, 4)
    found = variance(spend("25", node_hour_usd=Decimal("2.5"), idle_usd=Decimal("2.5")))
    assert (found.price_usd, found.speed_usd) == (5, 0)


def test_hours_without_the_job_beyond_the_planned_start_are_idle() -> None:
    found = variance(spend("24", idle_usd=Decimal(5)))
    assert (found.idle_usd, found.speed_usd, found.difference_usd) == (3, 1, 4)
    found = variance(spend("19", idle_usd=Decimal(0)))
    assert (found.idle_usd, found.speed_usd) == (-2, 1), "it began at once, and ran longer"
    # At another price of an hour idle hours are those at the planned price; the rest is price.
    found = variance(spend("30", idle_usd=Decimal(6), node_hour_usd=Decimal(3)))
    assert (found.price_usd, found.idle_usd, found.speed_usd) == (10, 2, -2)


def test_tax_that_was_planned_is_no_difference_of_price() -> None:
    project = make_project(experiments={"a": {"model": "a.py", "tokens": "1B"}})
    cost = make_run_cost(tax="0.1")
    report = build_report(make_books(project, a=cost), MADE)
    rows = tuple(
        row.model_copy(update={"plan_id": "p1", "run_usd": Decimal(22)})
        for row in report.experiments
    )
    report = report.model_copy(update={"experiments": rows})
    one = spend("22", node_hour_usd=Decimal("2.2"), idle_usd=Decimal("2.2"))
    (found,) = with_spent(report, [one]).variances
    assert (found.price_usd, found.idle_usd, found.speed_usd, found.difference_usd) == (0, 0, 0, 0)


def test_disks_and_early_ends_move_neither_the_price_of_an_hour_nor_the_planned_start() -> None:
    fields: dict[str, Any] = {
        "model": "a.py",
        "tokens": "1B",
        "stop_early": {"share": "50%", "at_progress": "20%"},
        "eval": "50%",
    }
    usual = make_run_cost(tax="0.2", usd=Decimal(24))
    disks = RunLine(kind="storage", name="disks", quantity=1, unit="run", unit_usd=Decimal(5))
    cost = replace(usual, lines=(*usual.lines, disks))
    project = make_project(experiments={"a": fields})
    report = build_report(make_books(project, a=cost), MADE)
    rows = tuple(row.model_copy(update={"plan_id": "p1"}) for row in report.experiments)
    report = report.model_copy(update={"experiments": rows})
    # Calculator: 10 h at $2 and 20 % tax are $24.00, of which the hour of the start is $2.40.
    one = spend("24", node_hour_usd=Decimal("2.4"), idle_usd=Decimal("2.4"))
    (found,) = with_spent(report, [one]).variances
    assert (found.price_usd, found.idle_usd, found.speed_usd, found.difference_usd) == (0, 0, 0, 0)


def test_launches_and_attempts_that_came_to_nothing_are_failures() -> None:
    failed = spend("7", "net-2", has_succeeded=False, status="failed")
    found = variance(spend("23", lost_usd=Decimal(3)), failed)
    assert (found.launches, found.succeeded, found.spent_usd) == (2, 1, 30)
    assert (found.failures_usd, found.speed_usd, found.difference_usd) == (10, 0, 10)


def test_runs_beyond_the_plan_are_scope() -> None:
    found = variance(*(spend("20", f"net-{i}") for i in range(3)), runs=2)
    assert (found.planned_usd, found.scope_usd, found.difference_usd) == (40, 20, 20)
    assert (found.speed_usd, found.failures_usd) == (0, 0)


def test_what_is_not_known_is_none() -> None:
    found = variance(spend("24", node_hour_usd=None))
    assert found.price_usd is None and found.speed_usd is None and found.difference_usd == 4
    assert found.idle_usd is None and found.billed_usd is None
    found = variance(spend("24", idle_usd=None))
    assert found.idle_usd is None and found.speed_usd == 4, "it is in what is left"
    assert variance(spend("24", billed_usd=Decimal("22.5"))).billed_usd == Decimal("22.5")


def test_a_report_without_launches_stays_as_it_is() -> None:
    assert with_spent(planned(), []) == planned()


DOLLARS = st.decimals("0", "5000", places=2)


@st.composite
def spends(draw: st.DrawFn) -> Spend:
    usd = draw(DOLLARS)
    return spend(
        str(usd),
        draw(st.uuids()).hex,
        lost_usd=(lost := min(usd, draw(DOLLARS))),
        idle_usd=draw(st.none() | st.decimals("0", "1", places=3).map(lambda s: s * (usd - lost))),
        node_hour_usd=draw(st.decimals("0.01", "90", places=4)),
        has_succeeded=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(spends(), min_size=1, max_size=6))
def test_the_parts_add_up_to_the_difference(found: list[Spend]) -> None:
    row = variance(*found)
    parts = (row.scope_usd, row.failures_usd, row.price_usd, row.idle_usd, row.speed_usd)
    assert sum(one for one in parts if one is not None) == row.difference_usd
    assert row.difference_usd == row.spent_usd - (row.planned_usd or 0)


@pytest.mark.parametrize("status", ["running", "intended"])
def test_how_a_launch_stands_is_said(status: str) -> None:
    found = with_spent(planned(), [spend("1", status=status, has_ended=False)])
    assert found.spent[0].status == status
