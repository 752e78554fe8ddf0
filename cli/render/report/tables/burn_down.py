"""What is planned and what is spent until the end of each month, and what is left."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from .....planner.budget.project.months import Month
from .....planner.budget.report.report import BudgetReport
from ..figures import least
from .tables import Column, Table, without_empty


@dataclass(frozen=True)
class UntilMonth:
    """What is planned and spent until the end of a month."""

    month: str
    planned_usd: Decimal
    low_usd: Decimal
    """With a chance of 10 % it is less."""
    high_usd: Decimal
    """With a chance of 10 % it is more."""
    spent_usd: Decimal | None
    """As the accounts of the launches say; None after the last month with a launch."""
    lower_bound: bool = False
    """Whether what is planned, and its range, are the least that they may be."""


def burn_down(report: BudgetReport) -> list[UntilMonth]:
    """Return the months with what is planned and what is spent until the end of each."""
    spent_usd = _spent_by_month(report)
    last = max(spent_usd, default=None)
    planned, found = Decimal(0), []
    for row, until in zip(report.by_month, report.month_ranges, strict=True):
        month = Month.parse(row.name)
        planned += row.usd
        is_past = last is not None and month <= max(last, report.project.start)
        spent = [usd for of, usd in spent_usd.items() if of <= month]
        found.append(
            UntilMonth(
                month=row.name,
                planned_usd=planned,
                low_usd=until.p10_usd,
                high_usd=until.p90_usd,
                lower_bound=until.lower_bound,
                spent_usd=sum(spent, Decimal(0)) if is_past else None,
            )
        )
    return found


def _spent_by_month(report: BudgetReport) -> dict[Month, Decimal]:
    """Return what launches have cost in each month, as their limits count it."""
    found: dict[Month, Decimal] = {}
    for one in report.spent:
        for month, usd in (one.usd_by_month or {str(one.month): one.usd}).items():
            key = Month.parse(month)
            found[key] = found.get(key, Decimal(0)) + usd
    return found


def burn_down_table(report: BudgetReport) -> Table:
    """Return what is planned and spent until the end of each month, and what is left."""
    table = Table(
        id="burn-down",
        caption="Planned and spent until the end of each month, and what is left of the budget",
        columns=(
            Column("Until the end of", "month"),
            Column("Planned", "usd"),
            Column("Likely at least", "about_usd"),
            Column("Likely at most", "about_usd"),
            Column("Left of the budget, planned", "usd"),
            Column("Spent", "usd", may_be_absent=True),
            Column("Left of the budget, spent", "usd", may_be_absent=True),
        ),
        rows=tuple(
            (
                row.month,
                least(row.planned_usd, row.lower_bound),
                least(row.low_usd, row.lower_bound),
                least(row.high_usd, row.lower_bound),
                report.budget_usd - row.planned_usd,
                row.spent_usd,
                None if row.spent_usd is None else report.budget_usd - row.spent_usd,
            )
            for row in burn_down(report)
        ),
    )
    return without_empty(table)
