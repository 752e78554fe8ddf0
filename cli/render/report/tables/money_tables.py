"""The tables of a report that are about money: by month, owner and provider, lines, limits."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from .....planner.budget.report.limit_rows import LimitCheck
from .....planner.budget.report.report import BudgetReport
from .....planner.budget.report.rows import Entry, MoneyRange, Sum
from .....planner.budget.sums import NO_EXPERIMENT
from ..figures import least
from ..figures import usd as usd_text
from ..words import beside_plan
from .tables import Column, Table, without_empty

USD = Column("US dollars", "usd", adds=True)
SHARE = Column("Share", "share", adds=False)
STATUS = Column("Against the limit")
NOT_KNOWN = "not known"
KINDS = {
    "accelerators": "training on rented accelerators",
    "start-up": "start of the machines",
    "evaluation": "evaluation",
    "failures": "failures and restarts",
    "commitment": "machines paid for a term",
    "tax": "tax",
    "retries": "runs begun again",
    "development": "trials before the final runs",
    "storage": "stored data",
    "egress": "data that leaves a cloud",
    "idle": "machines kept without work",
    "people": "people",
    "extra": "fixed amounts",
}
"""Kinds of the ledger in words."""


def range_cells(total: MoneyRange) -> tuple[Decimal, Decimal, Decimal]:
    """Return a planned sum and the ends of its range, each marked where it is the least."""
    ends = (total.usd, total.p10_usd, total.p90_usd)
    usd, low, high = (least(one, total.lower_bound) for one in ends)
    return usd, low, high


def sum_cell(row: Sum) -> Decimal:
    """Return a sum of the ledger, marked where it is the least that it may be."""
    return least(row.usd, row.lower_bound)


def options_table(report: BudgetReport) -> Table:
    """Return the three ways to carry the project out."""
    return Table(
        id="options",
        caption="Three ways to carry the project out",
        columns=(
            Column("Option"),
            Column("US dollars", "usd"),
            Column("Likely at least", "about_usd"),
            Column("Likely at most", "about_usd"),
            Column("Last run ends in", "month"),
            Column("Days", "number"),
            Column("Accelerator-hours", "count"),
            Column("Beside the plan"),
        ),
        rows=tuple(
            (
                f"{row.name} (planned)" if row.is_planned else row.name,
                *range_cells(row.total),
                str(row.ends),
                row.days,
                row.accelerator_hours,
                beside_plan(row, report.options),
            )
            for row in report.options
        ),
    )


def months_table(report: BudgetReport) -> Table:
    """Return what falls due in each month, beside its limit."""
    columns = (Column("Month", "month"), USD, SHARE)
    rows = [(row.name, sum_cell(row), row.share, *_limit(row)) for row in report.by_month]
    return _checked("months", "Cost by month", columns, rows, report.by_month)


def sums_table(name: str, caption: str, heading: str, sums: Sequence[Sum]) -> Table:
    """Return sums of the ledger by what `heading` says, with their limits where there are any."""
    rows = [(row.name, sum_cell(row), row.share, *_limit(row)) for row in sums]
    return _checked(name, caption, (Column(heading, is_name=True), USD, SHARE), rows, sums)


def waterfall_rows(report: BudgetReport) -> list[tuple[str, Decimal]]:
    """Return the steps from nothing to the budget: every kind, then the contingency."""
    steps = [(KINDS.get(row.name, row.name), sum_cell(row)) for row in report.by_kind]
    if report.contingency_usd:
        steps.append(("contingency", least(report.contingency_usd, report.is_lower_bound)))
    return steps


def budget_table(report: BudgetReport) -> Table:
    """Return how the parts add up to the budget."""
    return Table(
        id="budget",
        caption="How the parts add up to the budget",
        columns=(Column("Part"), USD),
        rows=tuple(waterfall_rows(report)),
        has_total=True,
    )


def lines_table(report: BudgetReport) -> Table:
    """Return the lines of the ledger, those of all months of a line and a price together."""
    found: dict[tuple[object, ...], list[Entry]] = {}
    for entry in report.entries:
        key = (entry.experiment, entry.name, entry.provider, entry.sku, entry.unit, entry.unit_usd)
        found.setdefault(key, []).append(entry)
    rows = []
    for first, *others in found.values():
        usd = sum((one.usd for one in others), first.usd)
        paid = " ".join(filter(None, (first.provider, first.sku, first.region))) or None
        quantity = sum((one.quantity for one in others), first.quantity)
        name = first.experiment or NO_EXPERIMENT
        rows.append((usd, (name, first.name, paid, quantity, first.unit, first.unit_usd, usd)))
    return Table(
        id="lines",
        caption="Cost lines, the months of each together",
        columns=(
            Column("Experiment", is_name=True),
            Column("Line", is_name=True),
            Column("Paid to and for", is_name=True, may_be_absent=True),
            Column("Quantity", "number"),
            Column("Unit"),
            Column("US dollars a unit", "unit_usd"),
            USD,
        ),
        rows=tuple(row for _, row in sorted(rows, key=lambda pair: -pair[0])),
        has_total=True,
    )


def limits_table(report: BudgetReport) -> Table:
    """Return every limit, with what comes nearest to it."""
    table = Table(
        id="limits",
        caption="Limits of the project",
        columns=(
            Column("Limit", is_name=True),
            Column("Planned", "usd"),
            Column("Spent", "usd", may_be_absent=True),
            Column("At most", "usd"),
            STATUS,
        ),
        rows=tuple(
            (one.name, _planned(one), one.spent_usd, one.limit_usd, _status_of(one))
            for one in report.limits
        ),
        flagged=frozenset(index for index, one in enumerate(report.limits) if one.is_over),
    )
    return without_empty(table)


def _planned(one: LimitCheck) -> Decimal | None:
    """Return what is planned against a limit; None where nothing of it has a price."""
    if one.unpriced and not one.usd:
        return None
    return least(one.usd, bool(one.unpriced or one.in_part))


def _status_of(one: LimitCheck) -> str:
    if one.is_unknown:
        return one.unpriced_text
    if one.kept_text is not None:
        return f"within, {one.kept_text}"
    return _status(one.highest_usd, one.limit_usd, is_over=one.is_over)


def funding_table(report: BudgetReport) -> Table:
    """Return who pays, in the order in which it is spent."""
    table = Table(
        id="funding",
        caption="Who pays",
        columns=(
            Column("Source", is_name=True),
            Column("Kind"),
            Column("At the beginning", "usd"),
            Column("Pays", "usd", adds=True),
            Column("Indirect cost", "usd", adds=True),
            Column("Left", "usd"),
            Column("Expires", may_be_absent=True),
            Column("Lapses unused", "usd"),
        ),
        rows=tuple(
            (
                row.name,
                row.kind,
                row.usd,
                row.covers_usd,
                row.indirect_usd,
                row.left_usd,
                None if row.expires is None else row.expires.isoformat(),
                row.lapses_usd,
            )
            for row in report.funding
        ),
        has_total=True,
    )
    return without_empty(table)


def sensitivities_table(report: BudgetReport) -> Table:
    """Return the assumptions that move the total most."""
    return Table(
        id="sensitivities",
        caption="The assumptions that move the total most",
        columns=(
            Column("Assumption", is_name=True),
            Column("Low end"),
            Column("Cost at the low end", "about_usd"),
            Column("High end"),
            Column("Cost at the high end", "about_usd"),
            Column("Difference", "about_usd"),
        ),
        rows=tuple(
            (
                one.name,
                one.low,
                least(one.low_usd, report.is_lower_bound),
                one.high,
                least(one.high_usd, report.is_lower_bound),
                one.swing_usd,
            )
            for one in report.sensitivities
        ),
    )


def assumptions_table(report: BudgetReport) -> Table:
    """Return what the sums rest on, and where each value is from."""
    return Table(
        id="assumptions",
        caption="Assumptions, with the source of each",
        columns=(
            Column("Assumption", is_name=True),
            Column("Value"),
            Column("From"),
            Column("Source", has_links=True),
        ),
        rows=tuple(
            (one.name, one.value, "a default" if one.is_default else "the project", one.source)
            for one in report.assumptions
        ),
    )


def _limit(row: Sum) -> tuple[Decimal | None, str | None]:
    if row.limit_usd is None:
        return None, None
    if row.is_unknown:
        return row.limit_usd, NOT_KNOWN
    return row.limit_usd, _status(row.highest_usd, row.limit_usd, is_over=row.is_over)


def _status(usd: Decimal, limit_usd: Decimal, *, is_over: bool) -> str:
    return f"over by {usd_text(usd - limit_usd)}" if is_over else "within"


def _checked(
    name: str,
    caption: str,
    columns: tuple[Column, ...],
    rows: Sequence[tuple[object, ...]],
    sums: Sequence[Sum],
) -> Table:
    limit = Column("At most", "usd", may_be_absent=True)
    status = Column(STATUS.heading, may_be_absent=True)
    table = Table(
        id=name,
        caption=caption,
        columns=(*columns, limit, status),
        rows=tuple(rows),  # pyright: ignore[reportArgumentType]
        has_total=True,
        flagged=frozenset(index for index, row in enumerate(sums) if row.is_over),
    )
    return without_empty(table)
