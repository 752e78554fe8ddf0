"""The ledger of a budget report as CSV: one line a row, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from decimal import Decimal

from .....planner.budget.report.report import BudgetReport
from .....planner.budget.report.rows import Entry

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001
"""What a spreadsheet takes for the begin of a formula, full-width forms included:
https://owasp.org/www-community/attacks/CSV_Injection"""


def render_csv(report: BudgetReport) -> str:
    """Return the ledger as CSV with a heading: exact amounts, an unknown value an empty cell.

    What has no known price stands below it, without one.
    """
    lines = (*report.entries, *report.open_lines)
    columns = list(Entry.model_fields)
    return csv_text(columns, ([getattr(line, name, None) for name in columns] for line in lines))


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a heading and rows as CSV (RFC 4180), with the cells of `csv_cell`."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([csv_cell(value) for value in row])
    return stream.getvalue()


def csv_cell(value: object) -> str:
    """Return a value as a cell; of a text that a spreadsheet would compute, a ' is put before it.

    Nothing else of it changes, and numbers, negative ones too, stay numbers.
    """
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value:f}"
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA_STARTS) else text
