"""The charts of a report as Vega-Lite specifications: plain dicts that hold their own data.

Each function returns None where there is nothing to draw. Those about money are here, the others
in `run_charts`; `CHARTS` names all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Any

from .....planner.budget.report.report import BudgetReport
from .....planner.budget.sums import NO_EXPERIMENT
from .. import capacity
from ..figures import clean, usd
from ..tables.burn_down import burn_down
from ..tables.money_tables import waterfall_rows
from . import run_charts
from .drawing import (
    BAND,
    BAR,
    COLOURS,
    INK,
    LIMIT,
    PAPER,
    USD_AXIS,
    WIDTH,
    Spec,
    Values,
    coloured,
    drawn,
    framed,
    month_axis,
    name_axis,
)

MOST_SERIES = 7


def cost_by_month(report: BudgetReport) -> Spec | None:
    """Return a stacked bar a month: the dearest experiments, the others together, and the limit."""
    names = [row.name for row in report.by_experiment[:MOST_SERIES]]
    left = len(report.by_experiment) - len(names)
    others = f"{left} others"
    sums: dict[tuple[str, str], Decimal] = {}
    for entry in report.entries:
        name = entry.experiment or NO_EXPERIMENT
        key = (str(entry.month), name if name in names else others)
        sums[key] = sums.get(key, Decimal(0)) + entry.usd
    series = [*names, *([others] if left else [])]
    values = [
        {"month": month, "series": clean(name), "usd": float(amount), "rank": series.index(name)}
        for (month, name), amount in sorted(sums.items())
    ]
    months = [row.name for row in report.by_month]
    bars = drawn(
        {"type": "bar", "stroke": PAPER, "strokeWidth": 1},
        {
            "x": month_axis(months),
            "y": {"field": "usd", "type": "quantitative", "title": None, "axis": USD_AXIS},
            "color": coloured("series", [clean(name) for name in series]),
            "order": {"field": "rank"},
        },
        values,
    )
    limits = [
        {"month": row.name, "limit": float(row.limit_usd)}
        for row in report.by_month
        if row.limit_usd is not None
    ]
    limit = drawn(
        {
            "type": "tick",
            "thickness": 3,
            "color": LIMIT,
            "opacity": 1,
            "bandSize": WIDTH / max(1, len(months)),
        },
        {"x": month_axis(months), "y": {"field": "limit", "type": "quantitative"}},
        limits,
    )
    return framed({"layer": [bars, limit] if limits else [bars], "height": 220})


def forecast(report: BudgetReport) -> Spec | None:
    """Return what is spent until the end of each month: planned, its range, and actual."""
    rows = [
        {
            "month": row.month,
            "low": float(row.low_usd),
            "high": float(row.high_usd),
            "planned": float(row.planned_usd),
            "actual": None if row.spent_usd is None else float(row.spent_usd),
        }
        for row in burn_down(report)
    ]
    return _fan(rows, "Spent until the end of the month")


def remaining(report: BudgetReport) -> Spec | None:
    """Return what is left of the budget at the end of each month: planned, its range, actual."""
    budget = report.budget_usd
    rows = [
        {
            "month": row.month,
            "low": float(budget - row.high_usd),
            "high": float(budget - row.low_usd),
            "planned": float(budget - row.planned_usd),
            "actual": None if row.spent_usd is None else float(budget - row.spent_usd),
        }
        for row in burn_down(report)
    ]
    return _fan(rows, "Left of the budget")


def waterfall(report: BudgetReport) -> Spec | None:
    """Return how the parts add up to the budget."""
    values: Values = []
    begin = Decimal(0)
    for name, amount in filter(itemgetter(1), waterfall_rows(report)):
        values.append(_step(name, begin, begin + amount, "part"))
        begin += amount
    values.append(_step("budget", Decimal(0), begin, "sum"))
    y = name_axis("part", [row["part"] for row in values], limit=190)
    # Amounts are written to the right of the bars.
    scale = {"domain": [0, float(begin) * 1.3], "nice": False}
    x = {"type": "quantitative", "title": None, "axis": USD_AXIS, "scale": scale}
    bars = drawn(
        {"type": "bar", "height": {"band": 0.7}},
        {
            "y": y,
            "x": {**x, "field": "begin"},
            "x2": {"field": "end"},
            "color": {
                "field": "kind",
                "scale": {"domain": ["part", "sum"], "range": [COLOURS[0], COLOURS[7]]},
                "legend": None,
            },
        },
        values,
    )
    amounts = drawn(
        {"type": "text", "align": "left", "dx": 4, "color": INK},
        {"y": y, "x": {**x, "field": "end"}, "text": {"field": "text"}},
        values,
    )
    return framed({"layer": [bars, amounts], "height": {"step": BAR + 4}, "width": WIDTH - 60})


def tornado(report: BudgetReport) -> Spec | None:
    """Return how far each assumption moves the total, to both sides of the plan."""
    if not report.sensitivities:
        return None
    total = float(report.total.usd)
    values: Values = []
    for one in report.sensitivities:
        for side, text, amount in (
            ("low end", one.low, float(one.low_usd)),
            ("high end", one.high, float(one.high_usd)),
        ):
            values.append(
                {
                    "name": clean(one.name),
                    "side": side,
                    "text": clean(text),
                    "begin": total,
                    "end": amount,
                }
            )
    ends = [row["end"] for row in values]
    room = (max(ends) - min(ends)) * 0.38 or 1.0
    scale = {"domain": [min(ends) - room, max(ends) + room], "nice": False, "zero": False}
    y = name_axis("name", [clean(one.name) for one in report.sensitivities], limit=170)
    x = {"type": "quantitative", "title": None, "axis": USD_AXIS, "scale": scale}
    bars = drawn(
        {"type": "bar", "height": {"band": 0.7}},
        {
            "y": y,
            "x": {**x, "field": "begin"},
            "x2": {"field": "end"},
            "color": coloured("side", ["low end", "high end"]),
        },
        values,
    )
    layers = [bars, *_ends(values, y, x, total)]
    rule = drawn(
        {"type": "rule", "color": INK, "strokeWidth": 1.5},
        {"x": {**x, "field": "total"}},
        [{"total": total}],
    )
    return framed({"layer": [*layers, rule], "height": {"step": BAR + 8}})


CHARTS: dict[str, tuple[str, Callable[[BudgetReport], Spec | None]]] = {
    "cost_by_month": (
        "Cost by month, stacked by experiment; a red line is the limit",
        cost_by_month,
    ),
    "forecast": ("Spent until the end of each month: plan, 80 % range, actual", forecast),
    "remaining": ("Left of the budget at the end of each month", remaining),
    "waterfall": ("How the parts add up to the budget", waterfall),
    "tornado": ("How far each assumption moves the cost", tornado),
    "timeline": ("When each experiment runs", run_charts.timeline),
    "fronts": ("Cost against time of one run, of the dearest experiments", run_charts.fronts),
    "steps": ("Where the time of a step goes, of the dearest experiments", run_charts.steps),
    "memory": (
        "What fills the memory, of the dearest experiments; a line is what there is",
        run_charts.memory,
    ),
    "accelerators": (
        "Most accelerators at one time, by month and type; a thin line is the 80 % range, a red one"
        " what there is",
        capacity.accelerators,
    ),
    "capacity": (
        "When each set of runs goes on with the accelerators that there are; light: it waits",
        capacity.times,
    ),
}
"""Name → caption and the function that draws it."""


def _fan(rows: Sequence[Mapping[str, Any]], title: str) -> Spec | None:
    if not rows:
        return None
    months = [row["month"] for row in rows]
    x = month_axis(months)
    y = {"type": "quantitative", "title": title, "axis": USD_AXIS}
    values = [dict(row) for row in rows]
    band = drawn(
        {"type": "area", "color": BAND, "opacity": 1},
        {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        values,
    )
    lines: Values = []
    for name, key in (("planned", "planned"), ("actual", "actual")):
        lines += [
            {"month": row["month"], "line": name, "usd": row[key]}
            for row in rows
            if row[key] is not None
        ]
    line = drawn(
        {"type": "line", "strokeWidth": 2, "point": {"filled": True, "size": 36}},
        {
            "x": x,
            "y": {**y, "field": "usd"},
            "color": coloured("line", list(dict.fromkeys(row["line"] for row in lines))),
        },
        lines,
    )
    return framed({"layer": [band, line], "height": 200})


def _step(name: str, begin: Decimal, end: Decimal, kind: str) -> dict[str, Any]:
    text = usd(end - begin)
    return {
        "part": name,
        "begin": float(begin),
        "end": float(end),
        "kind": kind,
        "text": text,
    }


def _ends(values: Values, y: Spec, x: Spec, total: float) -> Iterable[Spec]:
    """Yield the layers that write each end of an assumption beside its bar."""
    for align, is_left in (("right", True), ("left", False)):
        rows = [row for row in values if (row["end"] <= total) == is_left]
        if rows:
            mark = {"type": "text", "align": align, "dx": -4 if is_left else 4, "color": INK}
            encoding = {"y": y, "x": {**x, "field": "end"}, "text": {"field": "text"}}
            yield drawn({**mark, "limit": 110}, encoding, rows)
