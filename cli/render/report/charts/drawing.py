"""What all charts have in common: colours, axes, legends and the frame of a specification.

Colours are those of `COLOURS`, which the style sheet of the page exchanges for others on a dark
screen. The specification: https://vega.github.io/vega-lite/docs/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Spec = dict[str, Any]
Values = list[dict[str, Any]]

WIDTH = 380
"""Pixels of the drawing, without its labels: the whole is read on a phone, which shrinks it."""
BAR = 20
DAYS_IN_MONTHS = 120
"""A longer time line has months at its axis, a shorter one days."""
COLOURS = (
    "#2563a8",
    "#c2410c",
    "#15803d",
    "#7c3aed",
    "#0e7490",
    "#be185d",
    "#a16207",
    "#4b5563",
)
"""At least 4.5 to 1 against white, so that neighbours and thin lines are told apart too."""
INK, MUTED, LINE, PAPER = "#1f2937", "#57606a", "#d5dae1", "#ffffff"
BAND, LIMIT = "#b9cfe6", "#9b1c1c"
USD_AXIS = {
    "format": "$~s",
    "tickCount": 5,
    "labelExpr": "datum.value == 0 ? '$0' : datum.label",
}
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""A name, not fetched: renderers hold the schemas that they know."""


def drawn(mark: Spec, encoding: Spec, values: Values) -> Spec:
    """Return marks of one kind with their own data."""
    return {"data": {"values": values}, "mark": mark, "encoding": encoding}


def month_axis(names: Sequence[str]) -> Spec:
    """Return the axis of months, from left to right."""
    axis = {"labelAngle": -45 if len(names) > 6 else 0, "labelOverlap": True}
    scale = {"domain": list(names)}
    return {"field": "month", "type": "ordinal", "title": None, "axis": axis, "scale": scale}


def time_axis(days: float) -> dict[str, Spec]:
    """Return the axis of time, over so many days, for marks from their `begin` to their `end`."""
    # Begins and ends are of no time zone: without utc they move with that of the machine.
    unit = "utcyearmonthdatehoursminutes"
    axis = {
        "format": "%b %Y" if days > DAYS_IN_MONTHS else "%-d %b",
        "tickCount": 5,
        "labelOverlap": True,
    }
    begin = {
        "field": "begin",
        "type": "temporal",
        "title": None,
        "timeUnit": unit,
        "scale": {"type": "utc"},
        "axis": axis,
    }
    return {"x": begin, "x2": {"field": "end", "timeUnit": unit}}


def name_axis(field: str, names: Sequence[str], *, limit: int = 130) -> Spec:
    """Return the axis of names, from top to bottom in this order."""
    return {
        "field": field,
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(dict.fromkeys(names))},
        "axis": {"labelLimit": limit, "domain": False, "ticks": False},
    }


def coloured(field: str, names: Sequence[str]) -> Spec:
    """Return the colours of names, in this order, with a legend below."""
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(names))]
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(names), "range": colours},
        "legend": {"title": None, "orient": "bottom", "columns": 2, "labelLimit": 190},
    }


def framed(drawing: Spec) -> Spec:
    """Return the whole specification of a drawing, one WIDTH wide."""
    sized = drawing if "facet" in drawing else {"width": WIDTH, **drawing}
    return {
        "$schema": SCHEMA,
        "background": None,
        "padding": 4,
        **sized,
        "config": {
            "font": "Arial, Helvetica, sans-serif",
            "view": {"stroke": None},
            "axis": {
                "labelFontSize": 12,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                "labelColor": INK,
                "titleColor": MUTED,
                "gridColor": LINE,
                "domainColor": MUTED,
                "tickColor": MUTED,
            },
            "axisY": {"domain": False, "ticks": False},
            "legend": {"labelFontSize": 12, "labelColor": INK, "symbolType": "square"},
            "header": {"labelColor": INK},
            "text": {"fontSize": 12},
        },
    }
