"""What a project will come to, with launches that have ended and that are open."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.planner.budget.project.months import Month
from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.budget.report.matching import Launched
from gpuplan.planner.budget.report.spent import Spend, with_spent
from tests.support.projects import MADE, make_books, make_project, make_run_cost

ENDED = {"has_ended": True, "has_succeeded": True, "status": "succeeded"}
FAILED = {**ENDED, "has_succeeded": False, "status": "failed"}


def spend(usd: str, expected_usd: str | None = "20", plan: str = "p1", **changes: Any) -> Spend:
    facts: dict[str, Any] = {
        "launch": f"net-{usd}",
        "launched": Launched(plan=plan, is_of_project=True),
        "month": Month(2027, 3),
        "status": "running",
        "has_ended": False,
        "has_succeeded": False,
        "usd": Decimal(usd),
        "lost_usd": Decimal(0),
        "idle_usd": None,
        "node_hour_usd": Decimal(2),
        "billed_usd": None,
        "expected_usd": None if expected_usd is None else Decimal(expected_usd),
    }
    return Spend(**{**facts, **changes})


def comes_to(*spends: Spend, seeds: int = 2, cost: Any = None, **experiment: Any) -> Decimal:
    """Return what a project of runs at $20, and $100 for people, will come to."""
    named = {"model": "a.py", "tokens": "1B", "runs": {"seeds": seeds}, **experiment}
    people = {"name": "student", "usd": 100, "kind": "people", "month": "2027-02"}
    project = make_project(experiments={"a": named}, extras=[people])
    report = build_report(make_books(project, **({"a": cost} if cost else {})), MADE)
    rows = tuple(row.model_copy(update={"plan_id": "p1"}) for row in report.experiments)
    made = with_spent(report.model_copy(update={"experiments": rows}), spends)
    found = made.will_come_to_usd
    assert found >= 100 + sum((one.usd for one in made.spent), Decimal(0))
    return found


@pytest.mark.parametrize(
    ("spends", "usd"),
    [
        ((), 140),
        # In place of a run of $20: as it was, as expected, as planned, as it is already.
        ((spend("25", **ENDED),), 145),
        ((spend("3", "18"),), 138),
        ((spend("3", None),), 140),
        ((spend("31"),), 151),
        # Beyond the two runs that are planned, and what came to nothing.
        ((spend("25", **ENDED), spend("21", **ENDED), spend("31")), 177),
        ((spend("7", **FAILED),), 147),
        ((spend("5", plan="other"), spend("9", "12", plan="other")), 172),
    ],
)
def test_launches_count_as_they_are_and_other_runs_as_planned(spends, usd: int) -> None:
    assert comes_to(*spends) == usd


def test_launches_of_runs_without_a_price_count_what_they_cost() -> None:
    cost = make_run_cost(usd=None, usd_low=None, usd_high=None, lines=())
    assert comes_to(spend("25", **ENDED), spend("31"), cost=cost) == 156


@settings(max_examples=60, deadline=None)
@given(
    spends=st.lists(
        st.tuples(st.integers(0, 90), st.integers(0, 60), st.sampled_from(["open", "done", "bad"])),
        max_size=6,
    ),
    stopped=st.integers(0, 100),
)
def test_it_is_never_less_than_what_is_spent(spends, stopped: int) -> None:
    how = {"open": {}, "done": ENDED, "bad": FAILED}
    found = [spend(str(usd), str(expected), **how[one]) for usd, expected, one in spends]
    comes_to(*found, stop_early={"share": f"{stopped}%", "at_progress": "10%"})
