"""A budget report in the format that is asked for: the one way into this room.

`as_text(report, "md" | "csv" | "json" | "focus" | "html")` returns text, `as_xlsx(report)` the
bytes of a workbook, `as_template` a text of a template, and `table.render_table` lines for a
terminal. `format_of` finds the format of a file's name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Literal

from ....planner.budget.report.report import BudgetReport
from .formats.calculator import render_calculator
from .formats.chargeback import chargeback, render_chargeback_csv
from .formats.csv import render_csv
from .formats.document import document_html, document_markdown
from .formats.focus import render_focus
from .formats.grant import grant
from .formats.html import render_html
from .formats.markdown import render_markdown
from .formats.xlsx import render_xlsx

TextFormat = Literal["md", "csv", "json", "focus", "html"]
Format = Literal["md", "csv", "json", "focus", "html", "xlsx"]

TEMPLATE_FORMATS: dict[str, tuple[str, ...]] = {
    "grant": ("markdown", "html"),
    "chargeback": ("markdown", "html", "csv"),
    "calculator": ("csv",),
}
"""Template → the formats it is written in, the default first."""
SUFFIXES: dict[str, Format] = {
    ".md": "md",
    ".markdown": "md",
    ".csv": "csv",
    ".json": "json",
    ".html": "html",
    ".htm": "html",
    ".xlsx": "xlsx",
}
"""Ending of a file's name → format; `focus` has none of its own, its rows are CSV."""


def as_text(report: BudgetReport, format: TextFormat) -> str:
    """Return the report as text of a format; it ends with a line feed."""
    writers: dict[str, Callable[[BudgetReport], str]] = {
        "md": render_markdown,
        "csv": render_csv,
        "json": _as_json,
        "focus": render_focus,
        "html": render_html,
    }
    return writers[format](report)


def as_template(report: BudgetReport, template: str, form: str) -> str:
    """Return what a template makes of the report, in one of its `TEMPLATE_FORMATS`."""
    if template == "calculator":
        return render_calculator(report)
    if form == "csv":
        return render_chargeback_csv(report)
    document = grant(report) if template == "grant" else chargeback(report)
    return document_html(document) if form == "html" else document_markdown(document)


def as_xlsx(report: BudgetReport) -> bytes:
    """Return the report as the bytes of a workbook.

    Raises:
        UsageError: XlsxWriter is not installed.
    """
    return render_xlsx(report)


def format_of(path: str) -> Format | None:
    """Return the format that a file's name ends with: "report.html" is html; None for others."""
    return SUFFIXES.get(PurePath(path).suffix.lower())


def _as_json(report: BudgetReport) -> str:
    return report.model_dump_json(indent=2) + "\n"
