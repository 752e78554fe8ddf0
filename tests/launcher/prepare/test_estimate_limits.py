"""A plan's launch is held to the budget and the deadline that it was estimated with."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_estimate, make_plan
from launches import BUCKET

from gpuplan.catalog.errors import LimitError
from gpuplan.launcher.prepare.estimate_limits import with_estimate_limits
from gpuplan.launcher.prepare.preflight import refuse_over_budget, refuse_past_deadline
from gpuplan.launcher.prepare.request import GuardRequest, LaunchRequest
from gpuplan.launcher.store.origin import Origin
from gpuplan.launcher.store.sourced_plan import SourcedPlan
from gpuplan.planner.cost.launch_cost import LaunchCost
from gpuplan.planner.plan.question import Money, Question

NOW = datetime(2026, 11, 26, 8, tzinfo=UTC)
ASKED = LaunchRequest(outputs=BUCKET)


def given(**money: object) -> SourcedPlan:
    question = replace(Question(), money=Money(**money))  # pyright: ignore[reportArgumentType]
    origin = Origin(folder=str(Path.cwd()), spec_json="{}", files_hash="f", question=question)
    return SourcedPlan(plan=make_plan(), estimate=make_estimate(), origin=origin)


def test_the_budget_and_the_deadline_of_the_estimate_hold() -> None:
    plan = given(budget_usd=Decimal(80), deadline_s=7200.0)
    held = with_estimate_limits(plan, ASKED, now=NOW)
    assert held.guard.max_cost_usd == Decimal(80)
    assert held.guard.max_cost_source == "the --budget of the estimate"
    assert held.deadline == NOW + timedelta(hours=2)
    assert held.deadline_source == "the --deadline of the estimate"


def test_what_is_said_at_the_launch_holds_instead() -> None:
    later = NOW + timedelta(days=9)
    said = replace(ASKED, guard=GuardRequest(max_cost_usd=Decimal(99)), deadline=later)
    plan = given(budget_usd=Decimal(80), deadline_s=7200.0)
    assert with_estimate_limits(plan, said, now=NOW) == said


def test_an_estimate_without_limits_and_a_plan_without_an_estimate_set_none() -> None:
    assert with_estimate_limits(given(), ASKED, now=NOW) == ASKED
    unknown = SourcedPlan(plan=make_plan(), estimate=None, origin=None)
    assert with_estimate_limits(unknown, ASKED, now=NOW) == ASKED


def test_a_refusal_says_where_the_limit_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    held = with_estimate_limits(given(budget_usd=Decimal(10), deadline_s=60.0), ASKED, now=NOW)
    cost = LaunchCost(
        usd_per_hour=Decimal(20),
        hours_expected=2.0,
        hours_worst=3.0,
        hours_running=2.0,
        usd_expected=Decimal(40),
        usd_worst=Decimal(60),
        lines=(),
    )
    with pytest.raises(LimitError, match=r"than the --budget of the estimate \$10\.00"):
        refuse_over_budget(cost, held.guard)
    with pytest.raises(LimitError, match="and the --deadline of the estimate is in 0.02 hours"):
        refuse_past_deadline(cost, held.deadline, now=NOW, source=held.deadline_source)


def test_a_limit_of_hours_is_held_against_those_that_run_and_not_those_that_are_billed() -> None:
    cost = LaunchCost(
        usd_per_hour=Decimal("24.4"),
        hours_expected=1.0,  # A quarter of an hour, of which a whole one is billed.
        hours_running=0.25,
        usd_expected=Decimal("24.4"),
        usd_worst=Decimal("24.4"),
        lines=(),
    )
    refuse_over_budget(cost, GuardRequest(max_hours=0.4))
    refuse_past_deadline(cost, NOW + timedelta(minutes=24), now=NOW)
    with pytest.raises(LimitError, match=r"take 0\.25 hours, more than --max-hours 0\.2\."):
        refuse_over_budget(cost, GuardRequest(max_hours=0.2))
    with pytest.raises(LimitError, match=r"take 0\.25 hours"):
        refuse_past_deadline(cost, NOW + timedelta(minutes=12), now=NOW)
