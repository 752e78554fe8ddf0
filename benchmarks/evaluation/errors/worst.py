"""The step times that are predicted worst, with what is likely to be the cause of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpuplan.catalog.text.quantity import format_seconds
from gpuplan.planner.validation.errors import Observation, PredictionError, prediction_errors
from gpuplan.profiles.records import RunRecord

from ..groups import NEVER_FITTED
from ..tables import row_of, signed
from .causes import cause_of

WORST_ROWS = 20
MOST_OF_A_SOURCE = 4


def worst_part(observations: Sequence[Observation], records: Sequence[RunRecord]) -> str:
    """Return the part of the page on the step times that are farthest off, out of fold."""
    sources = {record.id: record.source_group for record in records}
    rows = [
        row
        for row in prediction_errors(observations).rows
        if row.quantity == "step_time_s"
        and row.error is not None
        and sources[row.id] not in NEVER_FITTED
    ]
    rows.sort(key=_distance, reverse=True)
    lines = [row_of(("run", "source", "measured", "predicted", "error", "likely cause"))]
    lines.append(row_of(("---", "---", "--:", "--:", "--:", "---")))
    for row in _few_of_a_source(rows, sources)[:WORST_ROWS]:
        source = sources[row.id]
        times = [format_seconds(one) for one in (row.measured or 0.0, row.predicted or 0.0)]
        lines.append(row_of((row.id, source, *times, signed(row.error), cause_of(row.id, source))))
    return "\n".join(
        [
            f"## The {WORST_ROWS} worst rows",
            "",
            f"Out of fold (a), at most {MOST_OF_A_SOURCE} of one source, without sources that are"
            " never fitted. Causes were written by hand after looking at the records; they are not"
            " proven.",
            "",
            *lines,
        ]
    )


def _few_of_a_source(
    rows: Iterable[PredictionError], sources: Mapping[str, str]
) -> list[PredictionError]:
    shown: Counter[str] = Counter()
    few = []
    for row in rows:
        shown[sources[row.id]] += 1
        if shown[sources[row.id]] <= MOST_OF_A_SOURCE:
            few.append(row)
    return few


def _distance(row: PredictionError) -> float:
    return abs(row.error or 0.0)
