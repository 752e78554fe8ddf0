"""What each owner pays in each month, with the lines behind it; together it is the whole cost."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from .....planner.budget.project.months import Month
from .....planner.budget.report.report import BudgetReport
from .....planner.budget.report.rows import Entry, LedgerLine
from .....planner.budget.sums import NO_EXPERIMENT, NO_OWNER
from .. import words
from ..figures import clean, least, usd
from ..tables.money_tables import sum_cell
from ..tables.tables import Column, Table, without_empty
from .calculator import calculator_table
from .csv import csv_text
from .document import Document, Passage

MOST_ROWS = 300
FIRST_COLUMNS = ("owner", "month", "experiment", "name")
USD = Column("US dollars", "usd", adds=True)


def chargeback(report: BudgetReport) -> Document:
    """Return the statement of charges: owners, owners by month, and the lines of each owner."""
    owners = [one.name for one in report.by_owner]
    at_least = "At least " if report.is_lower_bound else ""
    lead = [
        f"{at_least}{usd(report.total.usd)} is charged to {len(owners)} owner"
        f"{'' if len(owners) == 1 else 's'}: the planned cost, every line of it once."
    ]
    if report.is_lower_bound:
        known = clean(report.unpriced_text)
        lead.append(f"{known[0].upper()}{known[1:]}, and what it comes to is in no charge.")
    if report.contingency_usd:
        lead.append(
            f"The contingency of {usd(report.contingency_usd)} is in no charge: nobody has spent"
            " it, and it belongs to no owner."
        )
    passages = [Passage(title="What each owner pays", tables=(_owners(report), _months(report)))]
    passages += [
        Passage(title=f"Lines of {name}", tables=(_lines(index, name, report),))
        for index, name in enumerate(owners)
    ]
    calculator = calculator_table(report)
    if calculator.rows:
        passages.append(Passage(title="To check with the providers", tables=(calculator,)))
    return Document(
        kind="Charges by owner and month",
        title=f"Charges of {clean(report.project.name)}",
        subtitle=words.subtitle(report),
        lead=tuple(lead),
        passages=tuple(passages),
        most_rows=MOST_ROWS,
    )


def render_chargeback_csv(report: BudgetReport) -> str:
    """Return the ledger as CSV by owner and month: exact amounts, an unknown value an empty cell.

    What has no owner stands under "no owner", as in the report; what has no known price below the
    rest.
    """
    columns = [*FIRST_COLUMNS, *(one for one in Entry.model_fields if one not in FIRST_COLUMNS)]
    return csv_text(
        columns,
        (
            [_owner(line), *(getattr(line, name, None) for name in columns[1:])]
            for line in (*_ordered(report), *report.open_lines)
        ),
    )


def _owner(line: LedgerLine) -> str:
    return line.owner or NO_OWNER


def _ordered(report: BudgetReport) -> list[Entry]:
    """Return the ledger by owner, that who pays most first, and by month."""
    places = {one.name: place for place, one in enumerate(report.by_owner)}
    return sorted(report.entries, key=lambda one: (places[_owner(one)], one.month))


def _owners(report: BudgetReport) -> Table:
    return Table(
        id="owners",
        caption="What each owner pays",
        columns=(Column("Owner", is_name=True), USD, Column("Share", "share")),
        rows=tuple((one.name, sum_cell(one), one.share) for one in report.by_owner),
        has_total=True,
    )


def _months(report: BudgetReport) -> Table:
    sums: dict[tuple[str, Month], Decimal] = {}
    for entry in _ordered(report):
        key = _owner(entry), entry.month
        sums[key] = sums.get(key, Decimal(0)) + entry.usd
    for line in report.open_lines:
        key = _owner(line), line.month
        sums[key] = least(sums.get(key, Decimal(0)), True)
    return Table(
        id="owners-by-month",
        caption="What each owner pays in each month",
        columns=(Column("Owner", is_name=True), Column("Month", "month"), USD),
        rows=tuple((owner, str(month), amount) for (owner, month), amount in sums.items()),
        has_total=True,
    )


def _lines(index: int, owner: str, report: BudgetReport) -> Table:
    entries: Sequence[Entry] = [one for one in _ordered(report) if _owner(one) == owner]
    table = Table(
        id=f"lines-{index}",
        caption="Every line, by month",
        columns=(
            Column("Month", "month"),
            Column("Experiment", is_name=True),
            Column("Line", is_name=True),
            Column("Paid to and for", is_name=True, may_be_absent=True),
            Column("Quantity", "number"),
            Column("Unit"),
            Column("US dollars a unit", "unit_usd"),
            USD,
        ),
        rows=tuple(
            (
                str(one.month),
                one.experiment or NO_EXPERIMENT,
                one.name,
                " ".join(filter(None, (one.provider, one.sku, one.region))) or None,
                one.quantity,
                one.unit,
                one.unit_usd,
                one.usd,
            )
            for one in entries
        ),
        has_total=True,
    )
    return without_empty(table)
