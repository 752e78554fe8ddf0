"""Hours of runs, failed and early-ended ones too: those that are billed, and those of the clock."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.planner.budget.attempts import hours_expected
from gpuplan.planner.budget.ledger import ledger, run_lines
from gpuplan.planner.budget.planned import RunCostOf, RunLine
from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.cost.run_cost import UNIT
from tests.support.projects import (
    MADE,
    make_books,
    make_planned,
    make_run_cost,
    project_with,
)


def with_line(cost: RunCostOf, name: str, quantity: float, unit: str) -> RunCostOf:
    line = RunLine(kind="start-up", name=name, quantity=quantity, unit=unit, unit_usd=Decimal(2))
    return replace(cost, lines=(*cost.lines, line))


def billed_h(project, cost: RunCostOf) -> float:
    lines = run_lines(make_planned(project, cost=cost))
    return sum(line.quantity for line in lines if line.unit == UNIT)


def test_an_idle_tail_is_no_hour_of_a_failed_attempts_start() -> None:
    # Of 10 h one is the start; half of the attempts fail half-way: 1 + 4.5 h each.
    project = project_with(retry={"failed_share": "50%", "mean_progress_at_failure": "50%"})
    cost = with_line(make_run_cost(), "idle tail", 1, "run")
    (again,) = (row for row in ledger(make_books(project, a=cost)) if row.kind == "retries")
    assert again.quantity == pytest.approx(5.5)


@pytest.mark.parametrize(
    ("changes", "tails"),
    [
        ({"stop_early": {"share": "100%", "at_progress": "10%"}}, 2),
        ({"retry": {"failed_share": "50%", "mean_progress_at_failure": "0%"}}, 4),
        ({"development": "0.5", "eval": "50%"}, 3),
    ],
)
def test_every_attempt_has_an_idle_tail_however_long_it_is(changes, tails) -> None:
    """Half a run had half a tail, though machines wait for the end of each as long."""
    project = project_with(runs={"seeds": 2}, **changes)
    cost = with_line(make_run_cost(), "idle tail", 1, "run")
    rows = [row for row in ledger(make_books(project, a=cost)) if row.name == "idle tail"]
    assert sum(row.quantity for row in rows) == pytest.approx(tails)


def test_runs_that_are_ended_early_are_evaluated_until_then() -> None:
    project = project_with(eval="10%", stop_early={"share": "100%", "at_progress": "50%"})
    # A start of 1 h, half of 9 h of training, and a tenth of that half.
    assert billed_h(project, make_run_cost()) == pytest.approx(1 + 4.5 + 0.45)


def test_what_a_seller_rounds_up_is_billed_and_no_hour_of_the_clock() -> None:
    cost = with_line(make_run_cost(), "billing increment", 0.5, UNIT)
    assert billed_h(project_with(), cost) == pytest.approx(10.5)
    assert hours_expected(make_planned(project_with(), cost=cost)) == pytest.approx(10)


def test_runs_without_a_price_take_their_time() -> None:
    cost = make_run_cost(usd=None, usd_low=None, usd_high=None, lines=())
    project = project_with(retry={"failed_share": "50%", "mean_progress_at_failure": "50%"})
    assert hours_expected(make_planned(project, cost=cost)) == pytest.approx(15)


@settings(max_examples=40, deadline=None)
@given(
    nodes=st.integers(1, 4),
    seeds=st.integers(1, 9),
    failed=st.integers(0, 80),
    progress=st.integers(0, 100),
    share=st.integers(0, 100),
    at=st.integers(0, 100),
    evaluation=st.integers(0, 100),
    development=st.floats(0, 3),
)
def test_the_hours_that_are_shown_are_those_that_are_billed(
    nodes, seeds, failed, progress, share, at, evaluation, development
) -> None:
    project = project_with(
        runs={"seeds": seeds},
        retry={"failed_share": f"{failed}%", "mean_progress_at_failure": f"{progress}%"},
        stop_early={"share": f"{share}%", "at_progress": f"{at}%"},
        eval=f"{evaluation}%",
        development=development,
    )
    cost = with_line(make_run_cost(nodes=nodes), "idle tail", 1, "run")
    hours = hours_expected(make_planned(project, cost=cost))
    assert hours * nodes == pytest.approx(billed_h(project, cost))


def test_runs_counted_times_hours_times_accelerators_are_the_accelerator_hours() -> None:
    project = project_with(
        runs={"seeds": 3},
        retry={"failed_share": "25%"},
        stop_early={"share": "50%", "at_progress": "20%"},
    )
    (row,) = build_report(make_books(project), MADE).experiments
    assert row.runs_expected == pytest.approx(3 * (0.64 + 0.55 / 3))
    product = row.runs_expected * row.run_hours * row.accelerators
    assert product == pytest.approx(row.accelerator_hours)
