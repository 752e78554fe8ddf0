"""The tables of a report that compare it: with what was spent, and with an earlier report."""

from __future__ import annotations

from collections.abc import Mapping

from .....planner.budget.report.actual_rows import MatchedBy
from .....planner.budget.report.report import BudgetReport
from .tables import Column, Table


def moved_table(report: BudgetReport) -> Table:
    """Return why the sums differ from those of the earlier report that was asked for."""
    moved = report.moved
    return Table(
        id="moved",
        caption="What moved since the earlier report",
        columns=(
            Column("Experiment", is_name=True, may_be_absent=True),
            Column("Kind"),
            Column("Why"),
            Column("US dollars more", "usd", adds=True),
        ),
        rows=()
        if moved is None
        else tuple((one.experiment, one.kind, one.text, moved.worth(one)) for one in moved.causes),
        has_total=True,
    )


OUTSIDE = "outside the plan"
"""What launches of the project are called that no experiment planned."""
FOUND_BY: Mapping[MatchedBy, str] = {
    "plan": "its plan",
    "workload": "model, machines and layout",
    "machines": "machines and layout",
    "model": "name of the model",
}
"""How the experiment of a launch was found."""


def spent_table(report: BudgetReport) -> Table:
    """Return the launches of these plans so far, beside what each was planned with."""
    return Table(
        id="spent",
        caption="Launches so far, beside their plan",
        columns=(
            Column("Launch", is_name=True),
            Column("Experiment", is_name=True, may_be_absent=True),
            Column("Month", "month"),
            Column("Spent", "usd", adds=True),
            Column("Planned", "usd"),
            Column("Status"),
            Column("Found by"),
        ),
        rows=tuple(
            (
                one.launch,
                one.experiment,
                str(one.month),
                one.usd,
                one.planned_usd,
                one.status,
                OUTSIDE if one.matched_by is None else FOUND_BY[one.matched_by],
            )
            for one in report.spent
        ),
        has_total=True,
    )


def variance_table(report: BudgetReport) -> Table:
    """Return why ended launches cost more or less than they were planned with."""
    return Table(
        id="variance",
        caption="Launches that have ended, against their plan, and why they differ",
        columns=(
            Column("Experiment", is_name=True),
            Column("Runs done", "count"),
            Column("Runs planned", "count"),
            Column("Planned", "usd"),
            Column("Spent", "usd", adds=True),
            Column("Billed", "usd"),
            Column("More runs", "usd"),
            Column("Failures", "usd"),
            Column("Price", "usd"),
            Column("Idle", "usd"),
            Column("Speed", "usd"),
        ),
        rows=tuple(
            (
                one.experiment or OUTSIDE,
                one.succeeded,
                one.runs,
                one.planned_usd,
                one.spent_usd,
                one.billed_usd,
                one.scope_usd,
                one.failures_usd,
                one.price_usd,
                one.idle_usd,
                one.speed_usd,
            )
            for one in report.variances
        ),
        has_total=True,
    )
