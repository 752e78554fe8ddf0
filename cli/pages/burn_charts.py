"""Burn-down charts: what is left of planned dollars, of a launch and of a project's budget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from markupsafe import Markup

from ...catalog.text.money import format_money
from ...launcher.store.burn_down import BurnDown
from ..render.report.tables.burn_down import UntilMonth
from .drawing import (
    Place,
    Scale,
    area,
    band,
    dot,
    line,
    linear,
    note,
    path,
    plot,
    round_values,
    shortened,
    signed_money,
)
from .time_axis import TimeAxis

ROOM = 0.06
"""Beyond the ends of what is drawn, as a share of it."""
LIMIT_WITHIN = 1.6
"""The worst case is drawn where it is at most so many times the high end: farther away it would
press all else together."""
SHORTEST_S = 600


def launch_burn_down(burn: BurnDown, run: str) -> Markup | None:
    """Return what is left of a launch's planned cost, and when it ends at the present rate.

    None where no cost was planned, or nothing has begun to cost.
    """
    planned = burn.planned_usd
    if planned is None or planned <= 0 or not burn.has_begun:
        return None
    y, low, high = _left_scale(burn, planned)
    begin = next(at for at, usd in burn.spent[1:])
    x = TimeAxis(begin, _end(burn, begin))
    now = (x.share(burn.now), y(float(planned - burn.spent_usd)))
    parts = []
    if burn.low_usd is not None and burn.high_usd is not None:
        parts.append(band("likely", y(float(planned - burn.high_usd)), _least(burn, planned, y)))
    parts.append(line("zero", (0, y(0)), (1, y(0))))
    worst = burn.worst_usd
    if worst is not None and low <= planned - worst <= high:
        at = y(float(planned - worst))
        # Where the line comes near, its end is on the right.
        place, anchor = ((0.01, at), "start") if burn.is_over else ((1.0, at), "end")
        parts += [
            line("limit", (0, at), (1, at)),
            note(place, f"at most {format_money(worst)}", anchor, down=-9),
        ]
    parts += _forecast(burn, planned, x, y, now)
    line_places = [(x.share(at), y(float(planned - usd))) for at, usd in burn.spent[1:]]
    parts += [
        path("spent over" if burn.is_over else "spent", line_places),
        dot("over" if burn.is_over else "now", now, f"{format_money(burn.spent_usd)} spent"),
    ]
    return plot(
        parts,
        across=x.ticks(),
        up=[(y(value), signed_money(value)) for value in round_values(low, high)],
        label=f"Burn-down of {shortened(run)}: {signed_money(burn.spent_usd)} of"
        f" {format_money(planned)} spent",
    )


def _left_scale(burn: BurnDown, planned: Decimal) -> tuple[Scale, float, float]:
    """Return the axis of what is left, and its ends in dollars."""
    most = max(one for one in (planned, burn.high_usd, burn.spent_usd) if one is not None)
    if burn.worst_usd is not None and burn.worst_usd <= most * Decimal(LIMIT_WITHIN):
        most = max(most, burn.worst_usd)
    low, high = float(planned - most), float(planned)
    room = (high - low) * ROOM
    return linear(low - room, high + room), low - room, high + room


def _least(burn: BurnDown, planned: Decimal, y: Scale) -> float:
    assert burn.low_usd is not None
    return y(float(planned - burn.low_usd))


def _end(burn: BurnDown, begin: datetime) -> datetime:
    """Return the end of the axis: when the interval is spent, at the present rate."""
    last = max(
        (
            at
            for usd in (burn.planned_usd, burn.high_usd)
            if usd is not None and (at := burn.at(usd)) is not None
        ),
        default=burn.now,
    )
    whole = max(last - begin, timedelta(seconds=SHORTEST_S))
    return begin + whole * (1 + ROOM)


def _forecast(burn: BurnDown, planned: Decimal, x: TimeAxis, y: Scale, now: Place) -> list[Markup]:
    """Return the line from now on at the present rate, to the end of the interval."""
    usd = burn.end_usd
    last = burn.high_usd if burn.high_usd is not None else usd
    if usd is None or last is None:
        return []
    at, last_at = burn.at(usd), burn.at(last)
    if at is None or last_at is None:
        return []
    end = (x.share(last_at), y(float(planned - last)))
    likely = (x.share(at), y(float(planned - usd)))
    return [
        path("forecast", [now, end]),
        dot("ends", likely, f"{format_money(usd)} at {_time(at)}"),
    ]


def budget_burn_down(
    rows: Sequence[UntilMonth], *, budget_usd: Decimal, spent_usd: Decimal | None, now: datetime
) -> Markup | None:
    """Return what is left of a project's budget at the end of each month: planned, and spent.

    Args:
        rows: What is planned until the end of each month.
        budget_usd: Of the project.
        spent_usd: Until now; None: no launch was made.
        now: The clock.
    """
    if not rows:
        return None
    budget = float(budget_usd)
    ends = [0.0, *(_month_end(row.month) for row in rows)]
    first = _month_number(rows[0].month)
    x = linear(0, ends[-1] - first)
    lows = [budget - float(row.high_usd) for row in rows]
    low = min(0.0, *lows, budget - float(spent_usd or 0))
    y = linear(low - (budget - low) * ROOM, budget * (1 + ROOM))
    at = [x(_month_end(row.month) - first) for row in rows]
    highs = [budget - float(row.low_usd) for row in rows]
    fan = [(0.0, y(budget)), *zip(at, map(y, highs), strict=True)]
    back = [*zip(at, map(y, lows), strict=True)][::-1]
    planned = [(0.0, y(budget))] + [
        (place, y(budget - float(row.planned_usd))) for place, row in zip(at, rows, strict=True)
    ]
    parts = [area("likely", [*fan, *back]), line("zero", (0, y(0)), (1, y(0)))]
    parts += [path("planned", planned)]
    today = min(1.0, max(0.0, x(_months_of(now) - first)))
    if spent_usd is not None:
        place = (today, y(budget - float(spent_usd)))
        known = [
            (place, y(budget - float(row.spent_usd)))
            for place, row in zip(at, rows, strict=True)
            if row.spent_usd is not None and place < today
        ]
        parts.append(path("spent", [(0.0, y(budget)), *known, place]))
        parts.append(dot("now", place, f"{format_money(spent_usd)} spent until now"))
    step = max(1, -(-len(rows) // 6))
    half = 0.5 / len(rows)
    shown = [
        (at[index] - half, _month_name(rows[index].month)) for index in range(0, len(rows), step)
    ]
    return plot(
        parts,
        across=shown,
        up=[(y(value), signed_money(value)) for value in round_values(low, budget)],
        label="Left of the budget at the end of each month; the table below has the figures.",
        grid=[0.0, *at],
    )


def _month_number(name: str) -> float:
    year, month = name.split("-")
    return int(year) * 12 + int(month) - 1


def _month_end(name: str) -> float:
    return _month_number(name) + 1


def _months_of(moment: datetime) -> float:
    """Return a time in months since year 0, a day as a thirty-first of one."""
    return moment.year * 12 + moment.month - 1 + (moment.day - 1 + moment.hour / 24) / 31


def _month_name(name: str) -> str:
    return f"{datetime.strptime(name, '%Y-%m'):%b %Y}"


def _time(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"
