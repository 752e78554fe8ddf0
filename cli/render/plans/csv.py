"""Plans as CSV: one row a plan, one column for every value of the JSON, named by its path in it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ....planner.plan.answer.estimate import Estimate

ASKED_COLUMNS = ("generated_at", "model", "parameters", "question", "limits")
"""What was asked and when, in words as in the first lines of an answer."""


def render_csv(answer: Estimate) -> str:
    """Return the plans as CSV with a heading; an unknown value is an empty cell.

    Each row ends with what was asked, so that rows of several answers may stand in one table.
    """
    asked = dict(zip(ASKED_COLUMNS, asked_cells(answer), strict=True))
    rows = ({**row, **asked} for row in answer.rows())
    return csv_text((*answer.columns(), *ASKED_COLUMNS), rows)


def asked_cells(answer: Estimate) -> list[Any]:
    """Return the cells of `ASKED_COLUMNS`."""
    return [
        answer.generated_at,
        answer.workload.name,
        answer.workload.parameters,
        " · ".join(answer.asked_text),
        " · ".join(answer.limits_text),
    ]


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
