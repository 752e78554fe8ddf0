"""The chart of cost against time of the plans of an estimate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ...catalog.text.money import format_money
from .drawing import Scale, dot, line, path, plot, round_log_values

UNITS = ((48.0, 24.0, "days"), (1.0, 1.0, "h"), (0.0, 1 / 60, "min"))
"""Hours from which lengths of time are told in a unit, hours of the unit, and its name."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A plan in the chart of cost against time, with its 80 % intervals."""

    name: str
    link: str
    hours: tuple[float, float, float]
    """Low, likely, high."""
    usd: tuple[float, float, float]
    is_recommended: bool
    runs_as_it_is: bool = True
    """Whether the model's file runs there without a port."""


def undominated(points: Iterable[Point]) -> list[Point]:
    """Return those without a port than which none is both cheaper and faster, cheapest first."""
    found: list[Point] = []
    ready = (one for one in points if one.runs_as_it_is)
    for point in sorted(ready, key=lambda one: (one.usd[1], one.hours[1])):
        if not found or point.hours[1] < found[-1].hours[1]:
            found.append(point)
    return found


def cost_time_front(points: Sequence[Point]) -> Markup | None:
    """Return cost against time, both logarithmic, with intervals; None where nothing can be drawn.

    Points with an amount that is not above zero have no place on a logarithmic axis: left out.
    """
    points = [one for one in points if min(*one.hours, *one.usd) > 0]
    if not points:
        return None
    x, hours = _logarithmic([h for one in points for h in one.hours])
    y, usd = _logarithmic([u for one in points for u in one.usd])
    front = undominated(points)
    parts = [
        path("front", [(x(one.hours[1]), y(one.usd[1])) for one in front]),
        # The recommended plan and the front lie above the others.
        *(_point(one, "other", x, y) for one in points if one not in front),
        *(_point(one, "best", x, y) for one in front if not one.is_recommended),
        *(_point(one, "chosen", x, y) for one in points if one.is_recommended),
    ]
    return plot(
        parts,
        across=[(x(value), text) for value, text in _round_hours(*hours)],
        up=[(y(value), format_money(value)) for value in round_log_values(*usd)],
        label="Cost against time of the plans; the table below has the figures.",
    )


def _logarithmic(values: Sequence[float]) -> tuple[Scale, tuple[float, float]]:
    """Return where a value stands on a logarithmic axis with some room, and its ends."""
    low, high = math.log(min(values)), math.log(max(values))
    room = max(0.05, (high - low) * 0.05)
    low, width = low - room, high - low + 2 * room
    ends = (math.exp(low), math.exp(low + width))
    return lambda value: (math.log(value) - low) / width, ends


def _round_hours(low: float, high: float) -> list[tuple[float, str]]:
    """Return round lengths of time, in hours, and each in the unit in which all are told.

    >>> _round_hours(0.9, 200.0)
    [(1.0, '1 h'), (10.0, '10 h'), (100.0, '100 h')]
    """
    middle = math.sqrt(low * high)
    hours, unit = next((hours, unit) for least, hours, unit in UNITS if middle >= least)
    values = round_log_values(low / hours, high / hours)
    return [(value * hours, f"{value:,g} {unit}") for value in values]


def _point(point: Point, kind: str, x: Scale, y: Scale) -> Markup:
    across, up = x(point.hours[1]), y(point.usd[1])
    return Markup('<a href="{}" class="{}" aria-label="{}">{}{}{}</a>').format(
        point.link,
        kind,
        point.name,
        line("range", (x(point.hours[0]), up), (x(point.hours[2]), up)),
        line("range", (across, y(point.usd[0])), (across, y(point.usd[2]))),
        dot("", (across, up), point.name, radius=7 if kind == "chosen" else 5),
    )
