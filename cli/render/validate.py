"""A Validation as table, markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable

from ...catalog.text.quantity import DASH, format_bytes, format_seconds
from ...planner.validation.errors import PredictionError, SummaryRow, Validation
from .text.columns import GAP, Align, column_widths, padded

HEADINGS = (
    "group",
    "n",
    "MAPE",
    "median",
    "p90",
    "worst",
    "bias",
    "in 80 %",
    "width",
    "best constant",
    "50 % HFU",
    "skipped",
)
ALIGNS: tuple[Align, ...] = ("left", *("right" for _ in HEADINGS[1:]))
QUANTITY_NAMES = {"step_time_s": "step time", "peak_memory_bytes": "peak memory"}
HOLD_OUT_NAMES = {
    "configuration": "out of fold: constants fitted without the run's fifth of the configurations",
    "source": "with constants fitted without the run's source",
    "accelerator": "with constants fitted without the run's accelerator, its own curves left out",
}
GROUPING_NAMES = {"source_group": "source", "accelerator": "accelerator", "stack": "stack"}


def render_table(answer: Validation, worst: int) -> str:
    """Return the summaries, the worst rows and the skipped ones as text tables."""
    lines: list[str] = []
    for title, rows in _sections(answer):
        cells = [HEADINGS, *map(_cells, rows)]
        widths = column_widths(cells)
        filled = (GAP.join(padded(row, widths, ALIGNS)) for row in cells)
        table = [f" {line} " for line in filled]
        lines += [title.ljust(len(table[0])), *table, ""]
    return "".join(f"{line}\n" for line in [*lines, *_closing_lines(answer, worst)])


def render_markdown(answer: Validation, worst: int) -> str:
    """Return the same as Markdown tables."""
    parts = []
    for title, rows in _sections(answer):
        lines = [f"### {title}", "", _markdown_row(HEADINGS)]
        lines.append(_markdown_row(["---", *["--:"] * (len(HEADINGS) - 1)]))
        lines += [_markdown_row(_cells(row)) for row in rows]
        parts.append("\n".join(lines))
    parts.append("\n".join(f"- {line.strip()}" for line in _closing_lines(answer, worst) if line))
    return "\n\n".join(parts) + "\n"


def render_csv(answer: Validation, worst: int) -> str:
    """Return every row as CSV; lists are joined with "; "."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(PredictionError.model_fields)
    for row in answer.rows:
        writer.writerow(
            "; ".join(value) if isinstance(value, tuple) else value
            for value in row.model_dump().values()
        )
    return stream.getvalue()


def render_json(answer: Validation, worst: int) -> str:
    """Return the whole answer as JSON (docs/json.md)."""
    return answer.model_dump_json(indent=2) + "\n"


RENDERERS: dict[str, Callable[[Validation, int], str]] = {
    "table": render_table,
    "markdown": render_markdown,
    "csv": render_csv,
    "json": render_json,
}


def _sections(answer: Validation) -> Iterable[tuple[str, list[SummaryRow]]]:
    """Yield (title, rows) for every quantity and grouping that has rows."""
    for quantity, quantity_name in QUANTITY_NAMES.items():
        for by, by_name in GROUPING_NAMES.items():
            rows = [row for row in answer.summary if (row.by, row.quantity) == (by, quantity)]
            if rows:
                yield f"Error of the {quantity_name} by {by_name}", rows


def _cells(row: SummaryRow) -> list[str]:
    return [
        row.group,
        str(row.n),
        _percent(row.mape),
        _percent(row.median),
        _percent(row.p90),
        _signed(row.worst),
        _signed(row.bias),
        _percent(row.covered, digits=0),
        DASH if row.width is None else f"×÷ {1 + row.width:.2f}",
        _percent(row.null_best_constant),
        _percent(row.null_50_hfu),
        str(row.skipped) if row.skipped else "",
    ]


def _closing_lines(answer: Validation, worst: int) -> list[str]:
    lines = [f"Predicted {HOLD_OUT_NAMES[answer.hold_out]}"] if answer.hold_out else []
    lines += [
        f"Mean over sources, {QUANTITY_NAMES[quantity]}: {_percent(mape)}"
        for quantity, mape in answer.macro.items()
    ]
    verdicts = answer.verdicts
    if verdicts.n:
        lines.append(
            f"Out-of-memory verdicts: {verdicts.right} of {verdicts.n} right,"
            f" {verdicts.missed_out_of_memory} missed, {verdicts.false_out_of_memory} false"
        )
    lines += _worst_lines(answer, worst)
    reasons = Counter(row.skipped for row in answer.rows if row.skipped)
    lines += [f"Skipped {count}: {reason}" for reason, count in reasons.most_common()]
    return lines


def _worst_lines(answer: Validation, worst: int) -> list[str]:
    known = [row for row in answer.rows if row.error is not None]
    known.sort(key=lambda row: -abs(row.error or 0.0))
    return [
        f"Worst: {row.id} {QUANTITY_NAMES[row.quantity]} {_signed(row.error)}"
        f" (measured {_quantity(row, row.measured)}, predicted {_quantity(row, row.predicted)})"
        for row in known[:worst]
    ]


def _quantity(row: PredictionError, value: float | None) -> str:
    if value is None:
        return DASH
    return format_seconds(value) if row.quantity == "step_time_s" else format_bytes(value)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _percent(share: float | None, digits: int = 1) -> str:
    return DASH if share is None else f"{share * 100:.{digits}f} %"


def _signed(share: float | None) -> str:
    return DASH if share is None else f"{share * 100:+.1f} %"
