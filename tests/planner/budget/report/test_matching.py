"""Which experiment a launch counts for, and what says so."""

from __future__ import annotations

import pytest

from gpuplan.planner.budget.report.build import build_report
from gpuplan.planner.budget.report.matching import Launched, matched
from gpuplan.planner.budget.report.rows import ExperimentRow
from tests.support.projects import MADE, make_books, make_project


def rows(*facts: tuple[str, str, str, str, str]) -> list[ExperimentRow]:
    """Return experiments by name, id of the plan, its key, workload and name of the model."""
    (row,) = build_report(make_books(make_project()), MADE).experiments
    names = ("name", "plan_id", "plan_key", "workload", "model")
    return [row.model_copy(update=dict(zip(names, one, strict=True))) for one in facts]


SWEEP = ("sweep", "p1", "8xA100 dp8", "w1", "lora")
FINAL = ("final", "p2", "16xA100 fsdp16", "w2", "lora")
BASE = ("base", "p3", "8xA100 dp8", "w3", "gpt")


@pytest.mark.parametrize(
    ("launched", "found"),
    [
        (Launched(plan="p2", plan_key="8xA100 dp8", workload="w1"), ("final", "plan")),
        (Launched(plan="new", plan_key="8xA100 dp8", workload="w1"), ("sweep", "workload")),
        (Launched(plan="new", plan_key="8xA100 dp8", workload="w3"), ("base", "workload")),
        # The same model on other machines is the project's only where it was launched for it.
        (Launched(plan="new", plan_key="4xL4 dp4", workload="w1", model="lora"), None),
        (
            Launched(plan="new", plan_key="4xL4", workload="w1", model="lora", is_of_project=True),
            ("sweep", "model"),
        ),
        (
            Launched(plan="new", plan_key="4xL4", workload="w9", model="gpt", is_of_project=True),
            ("base", "model"),
        ),
        # An edited file of two experiments: nobody knows which.
        (
            Launched(plan="new", plan_key="4xL4", workload="w9", model="lora", is_of_project=True),
            None,
        ),
        (
            Launched(plan="new", plan_key="16xA100 fsdp16", is_of_project=True),
            ("final", "machines"),
        ),
        (Launched(plan="new", plan_key="8xA100 dp8", is_of_project=True), None),
        (Launched(plan="new", plan_key="16xA100 fsdp16"), None),
        (Launched(plan="new", is_of_project=True), None),
        (Launched(plan="new", model="other", is_of_project=True), None),
    ],
)
def test_by_plan_then_workload_then_name(launched: Launched, found: tuple[str, str] | None) -> None:
    answer = matched(launched, rows(SWEEP, FINAL, BASE))
    assert (None if answer is None else (answer[0].name, answer[1])) == found


def test_of_experiments_that_share_a_plan_the_first_has_its_launches() -> None:
    again = ("again", *SWEEP[1:])
    for launched in (Launched(plan="p1"), Launched(plan="x", plan_key=SWEEP[2], workload="w1")):
        answer = matched(launched, rows(SWEEP, again))
        assert answer is not None and answer[0].name == "sweep"


def test_what_neither_says_is_no_match() -> None:
    (row,) = rows(SWEEP)
    unknown = row.model_copy(update={"plan_key": None, "workload": None, "plan_id": None})
    launched = Launched(plan="p9", is_of_project=True)
    assert matched(launched, [unknown.model_copy(update={"model": None})]) is None
