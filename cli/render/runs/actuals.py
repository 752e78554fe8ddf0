"""Predicted beside measured, as aligned lines or Markdown."""

from __future__ import annotations

from rich.text import Text

from ....catalog.text.quantity import DASH, format_bytes, format_seconds
from ....launcher.local.actuals import Actuals, ActualsRow
from ..text.columns import Align, aligned, column_widths

UNKNOWN = "unknown"
HEADINGS = ("", "predicted", "80 % interval", "measured", "error", "inside")
ALIGNS: tuple[Align, ...] = ("left", "right", "right", "right", "right", "left")


def render_lines(answer: Actuals) -> list[Text]:
    """Return the comparison as lines of a terminal."""
    table = [HEADINGS, *(_cells(row) for row in answer.rows)]
    widths = column_widths(table)
    lines = [Text(_title(answer), style="bold")]
    lines += [
        Text(aligned(row, widths, ALIGNS), style="bold" if row is HEADINGS else "") for row in table
    ]
    return [*lines, *(Text(note) for note in answer.notes)]


def render_markdown(answer: Actuals) -> str:
    """Return the comparison as a Markdown table."""
    rules = [":---" if align == "left" else "---:" for align in ALIGNS]
    rows = [HEADINGS, rules, *(_cells(row) for row in answer.rows)]
    lines = [f"### {_title(answer)}", "", *(f"| {' | '.join(row)} |" for row in rows)]
    if answer.notes:
        lines += ["", *(f"- {note}" for note in answer.notes)]
    return "\n".join(lines) + "\n"


def _title(answer: Actuals) -> str:
    parts = [answer.run or "a run"]
    if answer.accelerator is not None:
        parts.append(f"{answer.accelerators} × {answer.accelerator}")  # noqa: RUF001
    if answer.plan is not None:
        parts.append(f"plan {answer.plan} ({answer.string}, {answer.planned_accelerator})")
    if answer.steps is not None:
        parts.append(f"{answer.steps:,} steps")
    return " · ".join(parts)


def _cells(row: ActualsRow) -> tuple[str, ...]:
    interval = DASH
    if row.low is not None and row.high is not None:
        interval = f"{_quantity(row, row.low)} to {_quantity(row, row.high)}"
    return (
        row.name,
        _quantity(row, row.predicted),
        interval,
        _quantity(row, row.measured),
        DASH if row.error is None else f"{row.error * 100:+.1f} %",
        DASH if row.inside is None else "yes" if row.inside else "no",
    )


def _quantity(row: ActualsRow, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return format_seconds(value) if row.unit == "s" else format_bytes(value)
