"""Plans as CSV: one row a plan, one column for every value of the JSON, named by its path in it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ....planner.plan.answer.estimate import Estimate


def render_csv(answer: Estimate) -> str:
    """Return the plans as CSV with a heading; an unknown value is an empty cell."""
    return csv_text(answer.columns(), answer.rows())


def csv_text(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a heading and one line a row, of values that JSON can hold."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(csv_cell(value) for value in row.values())
    return stream.getvalue()


def csv_cell(value: Any) -> Any:
    """Return a value of JSON as a cell: lists and objects as JSON text, None as an empty cell."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
