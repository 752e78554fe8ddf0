"""A budget report as a workbook whose sums are formulas: change a price, and the total follows.

Sheets: Summary, By month, Ledger, Prices (every unit price once, which the ledger points to),
Assumptions, and Tables with all the rest of the report. Texts are written as texts, whatever they
begin with. XlsxWriter is in the extra `report`.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from .....catalog.errors import UsageError
from .....planner.budget.project.months import Month
from .....planner.budget.report.report import BudgetReport
from .....planner.budget.report.rows import Entry, LedgerLine, Sum
from .....planner.budget.sums import NO_EXPERIMENT, NO_OWNER, NO_PROVIDER
from .. import words
from ..figures import UNKNOWN, AtLeast, Kind, Value, clean, cut
from ..sections import sections
from ..tables.money_tables import assumptions_table, options_table
from ..tables.tables import Table
from .xlsx_style import Style, styles_of

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.format import Format
    from xlsxwriter.worksheet import Worksheet

LONGEST_CELL = 32_000
"""Excel holds 32,767 characters in a cell: https://support.microsoft.com/office/1672b34d"""
LEDGER_COLUMNS = (
    ("Month", 10),
    ("Experiment", 26),
    ("Stage", 16),
    ("Owner", 18),
    ("Provider", 12),
    ("Region", 14),
    ("Machine", 28),
    ("Accelerator", 18),
    ("Kind", 14),
    ("Line", 24),
    ("Quantity", 14),
    ("Unit", 16),
    ("US dollars a unit", 16),
    ("US dollars", 16),
)
MONTH, EXPERIMENT, OWNER, PROVIDER, KIND = "A", "B", "D", "E", "I"
QUANTITY, PRICE, USD = "K", "M", "N"
MACHINE_UNIT = "instance-hour"
PRICE_HEAD_ROWS = 3
"""Rows above the first price."""


@dataclass(frozen=True)
class _Book:
    """The workbook that is being written, and what it is of."""

    report: BudgetReport
    book: Workbook
    style: Style

    @property
    def rows(self) -> int:
        """Rows of the ledger."""
        return len(self.report.entries)

    def ledger(self, column: str) -> str:
        """Return the address of a column of the ledger."""
        return f"Ledger!${column}$2:${column}${max(2, self.rows + 1)}"


def render_xlsx(report: BudgetReport) -> bytes:
    """Return the report as the bytes of an .xlsx file.

    Raises:
        UsageError: XlsxWriter is not installed.
    """
    if importlib.util.find_spec("xlsxwriter") is None:
        raise UsageError(
            "A workbook needs the package XlsxWriter.", fix='pip install "gpuplan[report]".'
        )
    import xlsxwriter

    stream = io.BytesIO()
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(stream, options) as book:
        made = datetime.fromisoformat(report.generated_at).replace(tzinfo=None)
        book.set_properties({"title": cut(words.headline(report), 200), "created": made})
        of = _Book(report, book, styles_of(book))
        sheets = {
            name: book.add_worksheet(name)
            for name in ("Summary", "By month", "Ledger", "Prices", "Assumptions", "Tables")
        }
        _summary(of, sheets["Summary"])
        _by_month(of, sheets["By month"])
        _ledger(of, sheets["Ledger"], _prices(of, sheets["Prices"]))
        _one_table(of, sheets["Assumptions"], 0, assumptions_table(report))
        sheets["Assumptions"].set_column(0, 3, 32)
        for sheet in sheets.values():
            sheet.set_landscape()
            sheet.fit_to_pages(1, 0)
        _all_tables(of, sheets["Tables"])
    return stream.getvalue()


def _summary(of: _Book, sheet: Worksheet) -> None:
    """Write the sums that the report begins with, then those by experiment, owner and so on."""
    report, style = of.report, of.style
    sheet.set_column(0, 0, 44)
    sheet.set_column(1, 3, 18)
    _text(sheet, 0, 0, words.headline(report), style.title)
    _text(sheet, 1, 0, words.subtitle(report), style.note)
    total = f"=ROUND(SUM({of.ledger(USD)}),2)"
    _text(sheet, 3, 0, "Planned cost", style.bold)
    form = style.usd(report.is_lower_bound)
    _formula(sheet, 3, 1, total, form, float(report.total.usd))
    if report.is_lower_bound:
        _text(
            sheet, 3, 2, f"{clean(report.unpriced_text)}: the sums are the least that they may be"
        )
    _text(sheet, 4, 0, "Contingency, share of it", style.bold)
    sheet.write_number(4, 1, report.contingency_share, of.style.inputs["share"])
    _text(sheet, 5, 0, "Contingency", style.bold)
    _formula(sheet, 5, 1, "=ROUND(B4*B5,2)", form, float(report.contingency_usd))
    _text(sheet, 6, 0, "Budget to ask for", style.bold)
    _formula(sheet, 6, 1, "=B4+B6", form, float(report.budget_usd))
    row = _own_currency(of, sheet, 7)
    note = "Change a yellow cell, here or in the sheet Prices, and these sums follow."
    _text(sheet, row, 0, note, style.note)
    _text(sheet, row + 1, 0, "The figures below up to the options are of a simulation and stay.")
    for label, usd in (
        ("With a chance of 10 % the cost is less than", report.total.p10_usd),
        ("It is as likely more as less than", report.total.p50_usd),
        ("With a chance of 10 % the cost is more than", report.total.p90_usd),
    ):
        row += 1
        _text(sheet, row + 1, 0, label)
        sheet.write_number(row + 1, 1, float(usd), style.kinds["about_usd"])
    row = _one_table(of, sheet, row + 3, options_table(report))
    for heading, sums, column in (
        ("Experiment", report.by_experiment, EXPERIMENT),
        ("Owner", report.by_owner, OWNER),
        ("Provider", report.by_provider, PROVIDER),
        ("Kind", report.by_kind, KIND),
    ):
        row = _sums(of, sheet, row + 1, heading, sums, column)


def _own_currency(of: _Book, sheet: Worksheet, row: int) -> int:
    """Write the budget in the user's currency, where there is one; return the next row."""
    currency = of.report.currency
    if currency is None:
        return row
    style = of.style
    _text(sheet, row, 0, f"{currency.code} a US dollar, of {currency.date}", style.bold)
    sheet.write_number(row, 1, currency.per_usd, style.inputs["rate"])
    _text(sheet, row + 1, 0, f"Budget in {currency.code}", style.bold)
    value = float(of.report.budget_usd) * currency.per_usd
    plain = of.book.add_format({"num_format": "#,##0.00"})
    _formula(sheet, row + 1, 1, f"=ROUND(B7*B{row + 1},2)", plain, round(value, 2))
    return row + 2


def _sums(
    of: _Book, sheet: Worksheet, row: int, heading: str, sums: Sequence[Sum], column: str
) -> int:
    """Write sums of the ledger by one of its columns; return the next free row."""
    style = of.style
    _heads(sheet, row, (heading, "US dollars", "At most"), style)
    for at, one in enumerate(sums, start=row + 1):
        _text(sheet, at, 0, one.name)
        # EXACT and not SUMIFS: a name may be a pattern, begin with "=" or be longer than 255.
        formula = f"=SUMPRODUCT(EXACT({of.ledger(column)},A{at + 1})*{of.ledger(USD)})"
        form = style.usd(one.lower_bound)
        _formula(sheet, at, 1, f"=ROUND({formula[1:]},2)", form, float(one.usd))
        if one.limit_usd is not None:
            sheet.write_number(at, 2, float(one.limit_usd), style.kinds["usd"])
    end = row + 1 + len(sums)
    _text(sheet, end, 0, "Total", style.bold)
    total = sum((one.usd for one in sums), Decimal(0))
    formula = f"=ROUND(SUM(B{row + 2}:B{end}),2)"
    form = style.total(any(one.lower_bound for one in sums))
    _formula(sheet, end, 1, formula, form, float(total))
    return end + 1


def _by_month(of: _Book, sheet: Worksheet) -> None:
    style = of.style
    sheet.set_column(0, 4, 18)
    _heads(sheet, 0, ("Month", "US dollars", "Until its end", "At most", "Left of it"), style)
    until, is_least = Decimal(0), False
    for row, one in enumerate(of.report.by_month, start=1):
        until += one.usd
        is_least = is_least or one.lower_bound
        _month(sheet, row, 0, Month.parse(one.name), style)
        formula = f"=ROUND(SUMIFS({of.ledger(USD)},{of.ledger(MONTH)},A{row + 1}),2)"
        _formula(sheet, row, 1, formula, style.usd(one.lower_bound), float(one.usd))
        running = f"=ROUND(SUM(B$2:B{row + 1}),2)"
        _formula(sheet, row, 2, running, style.usd(is_least), float(until))
        if one.limit_usd is not None:
            left = float(one.limit_usd - one.usd)
            sheet.write_number(row, 3, float(one.limit_usd), style.kinds["usd"])
            form = style.most if one.lower_bound else style.kinds["usd"]
            _formula(sheet, row, 4, f"=D{row + 1}-B{row + 1}", form, left)
    end = len(of.report.by_month) + 1
    _text(sheet, end, 0, "Total", style.bold)
    formula = f"=ROUND(SUM(B2:B{end}),2)"
    _formula(sheet, end, 1, formula, style.total(is_least), float(until))
    sheet.freeze_panes(1, 1)


def _prices(of: _Book, sheet: Worksheet) -> dict[tuple[object, ...], str]:
    """Write every unit price once; return the address of each by what has it."""
    style = of.style
    sheet.set_column(0, 3, 26)
    sheet.set_column(4, 4, 18)
    _text(sheet, 0, 0, "Change a yellow price: the ledger and every sum follow.", style.bold)
    heads = ("Provider", "Region", "Machine or line", "Unit", "US dollars a unit")
    _heads(sheet, PRICE_HEAD_ROWS - 1, heads, style)
    found: dict[tuple[object, ...], str] = {}
    for entry in of.report.entries:
        key = _price_key(entry)
        if key in found:
            continue
        row = PRICE_HEAD_ROWS + len(found)
        for column, text in enumerate(key[:4]):
            _text(sheet, row, column, str(text or ""))
        sheet.write_number(row, 4, float(entry.unit_usd), style.inputs["price"])
        found[key] = f"Prices!$E${row + 1}"
    sheet.freeze_panes(PRICE_HEAD_ROWS, 0)
    return found


def _price_key(entry: Entry) -> tuple[object, ...]:
    """Return what two rows of the ledger share whose prices change together."""
    is_machine = entry.sku is not None and entry.unit == MACHINE_UNIT
    what = entry.sku if is_machine else entry.name
    return (entry.provider, entry.region, what, entry.unit, entry.unit_usd)


def _ledger(of: _Book, sheet: Worksheet, prices: dict[tuple[object, ...], str]) -> None:
    style = of.style
    for column, (_, width) in enumerate(LEDGER_COLUMNS):
        sheet.set_column(column, column, width)
    _heads(sheet, 0, [name for name, _ in LEDGER_COLUMNS], style)
    for row, entry in enumerate(of.report.entries, start=1):
        _month(sheet, row, 0, entry.month, style)
        _texts(sheet, row, entry)
        taxed = _first_taxed(of.report.entries, row - 1)
        if taxed is None:
            sheet.write_number(row, 10, float(entry.quantity), style.kinds["number"])
        else:
            base = f"=ROUND(SUM({USD}{taxed + 2}:{USD}{row}),2)"
            _formula(sheet, row, 10, base, style.kinds["number"], float(entry.quantity))
        _text(sheet, row, 11, entry.unit)
        price = f"={prices[_price_key(entry)]}"
        _formula(sheet, row, 12, price, style.kinds["unit_usd"], float(entry.unit_usd))
        usd = f"=ROUND({QUANTITY}{row + 1}*{PRICE}{row + 1},2)"
        _formula(sheet, row, 13, usd, style.kinds["usd"], float(entry.usd))
    _open_lines(of, sheet, of.rows + 1)
    sheet.freeze_panes(1, 2)
    sheet.autofilter(0, 0, max(1, of.rows), len(LEDGER_COLUMNS) - 1)


def _texts(sheet: Worksheet, row: int, line: LedgerLine) -> None:
    """Write what a row of the ledger is of, behind its month."""
    texts = (
        line.experiment or NO_EXPERIMENT,
        line.stage,
        line.owner or NO_OWNER,
        line.provider or NO_PROVIDER,
        line.region,
        line.sku,
        line.accelerator,
        line.kind,
        line.name,
    )
    for column, text in enumerate(texts, start=1):
        if text:
            _text(sheet, row, column, text)


def _open_lines(of: _Book, sheet: Worksheet, row: int) -> None:
    """Write what has no known price below the ledger: no formula looks there."""
    for at, line in enumerate(of.report.open_lines, start=row):
        _month(sheet, at, 0, line.month, of.style)
        _texts(sheet, at, line)
        sheet.write_number(at, 10, float(line.quantity), of.style.kinds["number"])
        _text(sheet, at, 11, line.unit)
        _text(sheet, at, 12, UNKNOWN)
        _text(sheet, at, 13, UNKNOWN)


def _first_taxed(entries: Sequence[Entry], at: int) -> int | None:
    """Return the first of the rows before a tax that it is a share of; None for other rows."""
    tax, left = entries[at], entries[at].quantity
    if tax.kind != "tax":
        return None
    for index in range(at - 1, -1, -1):
        one = entries[index]
        if one.kind == "tax" or (one.month, one.experiment) != (tax.month, tax.experiment):
            return None
        left -= one.usd
        if not left:
            return index
    return None


def _all_tables(of: _Book, sheet: Worksheet) -> None:
    sheet.set_column(0, 0, 30)
    sheet.set_column(1, 14, 18)
    row = 0
    for section in sections(of.report):
        for part in section.parts:
            row = _one_table(of, sheet, row, part.table) + 1


def _one_table(of: _Book, sheet: Worksheet, row: int, table: Table) -> int:
    """Write a table as it is; return the next free row."""
    style = of.style
    _text(sheet, row, 0, table.caption, style.bold)
    _heads(sheet, row + 1, [column.heading for column in table.columns], style)
    for at, values in enumerate(table.rows, start=row + 2):
        for column, value in enumerate(values):
            _value(sheet, at, column, value, table.columns[column].kind, style)
            if value is None:
                _text(sheet, at, column, table.columns[column].text(None))
    return row + 2 + len(table.rows)


def _value(sheet: Worksheet, row: int, column: int, value: Value, kind: Kind, style: Style) -> None:
    if isinstance(value, AtLeast) and kind in style.least:
        sheet.write_number(row, column, float(value), style.least[kind])
    elif isinstance(value, int | float | Decimal):
        sheet.write_number(row, column, float(value), style.kinds.get(kind))
    elif value is not None:
        _text(sheet, row, column, str(value))


def _formula(
    sheet: Worksheet, row: int, column: int, formula: str, style: Format, value: float
) -> None:
    """Write a formula with what we know that it gives, for readers that compute nothing."""
    sheet.write_formula(row, column, formula, style, value)  # pyright: ignore[reportArgumentType]


def _heads(sheet: Worksheet, row: int, texts: Sequence[str], style: Style) -> None:
    for column, text in enumerate(texts):
        _text(sheet, row, column, text, style.head)


def _month(sheet: Worksheet, row: int, column: int, month: Month, style: Style) -> None:
    day = datetime.combine(month.first_day, datetime.min.time())
    sheet.write_datetime(row, column, day, style.kinds["date"])


def _text(sheet: Worksheet, row: int, column: int, text: str, style: Format | None = None) -> None:
    """Write a text as one: never as a formula, an address or a number."""
    sheet.write_string(row, column, cut(clean(text), LONGEST_CELL), style)
