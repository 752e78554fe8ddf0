"""What one run costs when it takes place, where prices move."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpuplan.planner.budget.planned import RunCostOf, RunLine
from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.budget.report.report import BudgetReport
from tests.support.projects import MADE, make_books, make_project, make_run_cost


def report(
    trend: str, cost: RunCostOf | None = None, *, limit: str = "15", **experiment: object
) -> BudgetReport:
    """Return the report of runs of 10 h at $2, in a project of two years."""
    project = make_project(
        price_trend=trend,
        months=24,
        limits={"run": limit},
        experiments={"a": {"model": "a.py", "tokens": "1B", **experiment}},
    )
    return build_report(make_books(project, a=cost or make_run_cost()), MADE)


def test_one_run_costs_what_the_ledger_says_of_it() -> None:
    # $70.42 and 19 % of tax, half a year at -20 %: $62.99 and $11.97; of both together a cent less.
    cost = make_run_cost(hours=100, usd_per_hour="0.7042", tax="0.19")
    ends = {"usd": Decimal("83.80"), "usd_low": Decimal("83.80"), "usd_high": Decimal("167.60")}
    found = report("-20%", replace(cost, **ends), start="2027-07")
    (row,) = found.experiments
    assert row.run_usd == found.total.usd == row.run_usd_low == Decimal("74.96")
    assert row.run_usd_high == Decimal("149.92")


@pytest.mark.parametrize(("limit", "is_over"), [("16", False), ("15.99", True)])
def test_the_limit_of_a_run_is_held_against_the_price_of_its_month(
    limit: str, *, is_over: bool
) -> None:
    found = report("-20%", limit=limit, start="2028-01")
    (check,) = found.limits
    assert (check.usd, check.is_over) == (16, is_over)


def test_of_several_months_the_mean_is_shown_and_the_dearest_is_held_against_the_limit() -> None:
    found = report("50%", start="2027-01", every="year", times=2)
    assert found.total.usd == 50
    assert found.experiments[0].run_usd == 25
    assert found.limits[0].usd == 30


def test_what_is_signed_or_paid_beside_the_machines_does_not_move() -> None:
    signed = report("-20%", make_run_cost(is_price_agreed=True), start="2028-01")
    assert signed.experiments[0].run_usd == signed.limits[0].usd == 20
    usual = make_run_cost()
    disks = RunLine(kind="storage", name="disks", quantity=1, unit="run", unit_usd=Decimal(5))
    found = report("-20%", replace(usual, lines=(*usual.lines, disks)), start="2028-01")
    assert found.experiments[0].run_usd == 16 and found.total.usd == 21


def test_a_run_without_a_price_has_none_in_any_month() -> None:
    cost = make_run_cost(usd=None, usd_low=None, usd_high=None, lines=())
    found = report("-20%", cost, start="2028-01")
    assert found.experiments[0].run_usd is None
    assert [one.is_unknown for one in found.limits] == [True]
