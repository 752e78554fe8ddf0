"""The charts of a report that are about the runs: when, how fast, in how much memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from .....catalog.units import GIB, HOURS_PER_DAY
from .....planner.budget.report.report import BudgetReport
from .....planner.budget.report.rows import ExperimentRow
from ...plans.explain import MEMORY_PARTS, STEP_PARTS
from ..figures import clean
from ..tables.run_tables import part_names
from .drawing import BAR, COLOURS, INK, PAPER, Spec, coloured, drawn, framed, name_axis, time_axis

MOST_FRONTS = 6
MOST_BARS = 20
MOST_SPANS = 80


def timeline(report: BudgetReport) -> Spec | None:
    """Return when each experiment runs, coloured by stage where there are several."""
    first = datetime.combine(report.project.start.first_day, datetime.min.time())
    dearest = {row.name for row in _dearest(report)[:MOST_SPANS]}
    rows = [row for row in report.experiments if row.name in dearest]
    stages = list(dict.fromkeys(row.stage or "no stage" for row in rows))
    values = [
        {
            "name": clean(row.name),
            "begin": (first + timedelta(hours=row.begins_h)).isoformat(),
            "end": (first + timedelta(hours=row.ends_h)).isoformat(),
            "stage": clean(row.stage or "no stage"),
        }
        for row in rows
    ]
    if not values:
        return None
    days = max(row.ends_h for row in rows) / HOURS_PER_DAY
    encoding: Spec = {"y": name_axis("name", [row["name"] for row in values]), **time_axis(days)}
    if 1 < len(stages) <= len(COLOURS):
        encoding["color"] = coloured("stage", [clean(name) for name in stages])
    else:
        encoding["color"] = {"value": COLOURS[0]}
    layer = drawn({"type": "bar", "height": {"band": 0.7}}, encoding, values)
    # What takes hours of a year is a line that can be seen.
    begins = drawn(
        {"type": "tick", "orient": "vertical", "thickness": 2, "bandSize": 11, "opacity": 1},
        {name: encoding[name] for name in ("x", "y", "color")},
        values,
    )
    return framed({"layer": [layer, begins], "height": {"step": 16}})


def fronts(report: BudgetReport) -> Spec | None:
    """Return cost against time of the dearest experiments, a small chart each."""
    rows = [row for row in _dearest(report) if len(row.front) > 1][:MOST_FRONTS]
    values = [
        {"name": clean(row.name), "hours": point.hours, "usd": float(point.usd)}
        for row in rows
        for point in row.front
    ]
    if not values:
        return None
    encoding = {
        "x": {
            "field": "hours",
            "type": "quantitative",
            "title": "hours of a run",
            "axis": {"tickCount": 4},
            "scale": {"zero": False},
        },
        "y": {
            "field": "usd",
            "type": "quantitative",
            "title": "US dollars",
            "axis": {"format": "$~s", "tickCount": 4},
            "scale": {"zero": False},
        },
    }
    mark = {
        "type": "line",
        "color": COLOURS[0],
        "point": {"filled": True, "color": COLOURS[0], "size": 40},
    }
    return framed(
        {
            "data": {"values": values},
            "facet": {
                "field": "name",
                "type": "nominal",
                "sort": [clean(row.name) for row in rows],
                "header": {"title": None, "labelLimit": 170, "labelFontSize": 12},
            },
            "columns": 2,
            "resolve": {"scale": {"x": "independent", "y": "independent"}},
            "spec": {"mark": mark, "encoding": encoding, "width": 150, "height": 100},
        }
    )


def steps(report: BudgetReport) -> Spec | None:
    """Return where the time of a step goes, milliseconds, of the dearest experiments."""
    rows = [row for row in _dearest(report) if row.step_parts]
    parts = [(row.name, row.step_parts) for row in rows[:MOST_BARS]]
    return _stacked(parts, STEP_PARTS, scale=1e3, title="milliseconds", capacity={})


def memory(report: BudgetReport) -> Spec | None:
    """Return what fills the memory, GiB, of the dearest experiments, beside what there is."""
    rows = [row for row in _dearest(report) if row.memory_parts][:MOST_BARS]
    parts = [(row.name, row.memory_parts) for row in rows]
    capacity = {
        row.name: row.memory_capacity_bytes / GIB
        for row in rows
        if row.memory_capacity_bytes is not None
    }
    return _stacked(parts, MEMORY_PARTS, scale=1 / GIB, title="GiB", capacity=capacity)


def _stacked(
    rows: Sequence[tuple[str, Mapping[str, float]]],
    known: Mapping[str, str],
    *,
    scale: float,
    title: str,
    capacity: Mapping[str, float],
) -> Spec | None:
    if not rows:
        return None
    names = part_names([parts for _, parts in rows], known)
    order = list(names)
    values = [
        {"name": clean(name), "part": names[key], "value": value * scale, "rank": order.index(key)}
        for name, parts in rows
        for key, value in parts.items()
        if value
    ]
    y = name_axis("name", [clean(name) for name, _ in rows])
    bars = drawn(
        {"type": "bar", "stroke": PAPER, "strokeWidth": 1, "height": {"band": 0.75}},
        {
            "y": y,
            "x": {"field": "value", "type": "quantitative", "title": title},
            "color": coloured("part", list(names.values())),
            "order": {"field": "rank"},
        },
        values,
    )
    marks = drawn(
        {"type": "tick", "thickness": 2, "color": INK},
        {"y": y, "x": {"field": "capacity", "type": "quantitative"}},
        [{"name": clean(name), "capacity": value} for name, value in capacity.items()],
    )
    return framed({"layer": [bars, marks] if capacity else [bars], "height": {"step": BAR}})


def _dearest(report: BudgetReport) -> list[ExperimentRow]:
    return sorted(report.experiments, key=lambda row: -row.total.usd)
