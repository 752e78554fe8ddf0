"""What all charts have in common: axes, lines and bars as SVG, with their texts beside them.

They are drawn here, by the program that serves them, without a library: they are there with the
page's first bytes, where Vega-Lite takes a second to start. Places are shares of the width, and
texts are not scaled with it: a chart is as readable on a phone as on a desk. Colours are classes of
`ui.css`, since the pages allow no inline style. Texts are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from markupsafe import Markup

from ...catalog.text.money import format_money
from ..render.report.figures import clean

COLOURS = 8
AT_END = 0.955
"""From this share of an axis on a label ends where it stands: it would be beyond the figure."""
ADDS_UP = 0.005
"""Of a whole: what rounding may leave between it and the sum of its parts."""
NAME_CHARS = 60
TEXT_DOWN = 4
"""Pixels from the middle of a line of text down to its base."""

Place = tuple[float, float]
"""A point of a chart: shares of its width and of its height, from below."""
Tick = tuple[float, str]
"""Where a label stands on an axis, from 0 to 1, and what it says."""
Scale = Callable[[float], float]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A part of a whole, with the text of its size."""

    name: str
    size: float
    text: str
    low: float | None = None
    high: float | None = None
    """Ends of an 80 % interval; None: not drawn."""
    kind: str = ""
    """A class of its own; else bars take the colours in turn."""
    begin: float = 0.0
    """Where it begins: parts of a whole stand one after another."""


def plot(
    parts: Iterable[Markup],
    *,
    across: Sequence[Tick],
    up: Sequence[Tick],
    label: str,
    grid: Sequence[float] | None = None,
) -> Markup:
    """Return a chart with two axes.

    Args:
        parts: What is in it, the lowest first.
        across: Labels below it.
        up: Labels left of it.
        label: What it shows, for a screen reader.
        grid: Where its upright lines stand; default: at the labels below it.
    """
    upright = [place for place, _ in across] if grid is None else grid
    lines = [
        *(line("grid", (place, 0), (place, 1)) for place in upright),
        *(line("grid", (0, place), (1, place)) for place, _ in up),
    ]
    # On a phone there is room for every second label, but not for none of two.
    kinds = ["tick", "tick minor" if len(across) > 3 else "tick"]
    below = [
        # At the right end a label ends where the chart does: the page never scrolls sideways.
        _text(kinds[index % 2], (place, 0), text, "end" if place > AT_END else "middle", down=20)
        for index, (place, text) in enumerate(across)
    ]
    left = [_text("tick", (0, place), text, "end", right=-8) for place, text in up]
    return Markup('<svg class="plot" role="group" aria-label="{}">{}</svg>').format(
        label, Markup("").join([*lines, *parts, *below, *left])
    )


def line(kind: str, begin: Place, end: Place) -> Markup:
    """Return a straight line between two places."""
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
        kind, _x(begin), _y(begin), _x(end), _y(end)
    )


def path(kind: str, places: Iterable[Place]) -> Markup:
    """Return a line through places, as thick wherever the chart is stretched to."""
    return _stretched(Markup('<polyline class="{}" points="{}"/>').format(kind, _points(places)))


def area(kind: str, places: Iterable[Place]) -> Markup:
    """Return the area within places."""
    return _stretched(Markup('<polygon class="{}" points="{}"/>').format(kind, _points(places)))


def dot(kind: str, place: Place, title: str, *, radius: float = 5) -> Markup:
    """Return a dot with a title that is shown under the pointer."""
    return Markup('<circle class="{}" cx="{}" cy="{}" r="{}"><title>{}</title></circle>').format(
        kind, _x(place), _y(place), radius, clean(title)
    )


def band(kind: str, low: float, high: float) -> Markup:
    """Return an area as wide as the chart, between two heights."""
    return Markup('<rect class="{}" x="0" y="{}" width="100%" height="{}"/>').format(
        kind, _y((0, high)), percent(high - low)
    )


def note(place: Place, text: str, anchor: str, *, down: float = 0) -> Markup:
    """Return a text within a chart; its anchor (start, middle, end) stands at the place."""
    return _text("label", place, text, anchor, down=down)


def bars(rows: Sequence[Bar], *, label: str, most: float | None = None) -> Markup | None:
    """Return one bar a row; None where there is none.

    Args:
        rows: From top to bottom.
        label: What they show, for a screen reader.
        most: What the longest bar could be; default: the largest size or interval.
    """
    sizes = [size for row in rows for size in (row.begin + row.size, row.high or 0.0)]
    whole = max([*sizes, most or 0.0], default=0.0)
    if whole <= 0:
        return None
    drawn = []
    for index, row in enumerate(rows):
        kind = row.kind or f"c{index % COLOURS + 1}"
        marks = [stretch(kind, row.begin / whole, (row.begin + row.size) / whole)]
        if row.low is not None and row.high is not None:
            marks.append(line("range", (row.low / whole, 0.5), (row.high / whole, 0.5)))
        drawn.append(bar_row(shortened(clean(row.name)), marks, row.text))
    return bar_rows(drawn, label)


def bar_row(name: str | Markup, marks: Iterable[Markup], text: str) -> Markup:
    """Return a row: its name, a strip with marks, and the text of its size."""
    return Markup(
        '<li><span class="name" dir="auto">{}</span>'
        '<svg class="strip" aria-hidden="true">{}</svg><span class="size">{}</span></li>'
    ).format(name, Markup("").join(marks), clean(text))


def bar_rows(rows: Iterable[Markup], label: str, *, kind: str = "bars") -> Markup:
    """Return rows as a list."""
    return Markup('<ul class="{}" aria-label="{}">{}</ul>').format(
        kind, clean(label), Markup("").join(rows)
    )


def stretch(kind: str, begin: float, end: float, title: str = "") -> Markup:
    """Return a bar in a strip, from one share of its width to another."""
    inner = Markup("<title>{}</title>").format(clean(title)) if title else ""
    return Markup('<rect class="{}" x="{}" width="{}" height="100%">{}</rect>').format(
        kind, percent(begin), percent(end - begin), inner
    )


def part_bars(
    parts: Mapping[str, float], total: Bar, *, scale_text: Callable[[float], str]
) -> list[Bar]:
    """Return a whole with its interval, and below it its parts, one after another.

    Parts that do not add up to the whole (they overlap) begin at its begin, each of them.
    """
    adds_up = abs(sum(parts.values()) - total.size) <= ADDS_UP * total.size
    rows, begin = [total], 0.0
    for name, size in parts.items():
        rows.append(Bar(name=name, size=size, text=scale_text(size), begin=begin))
        begin += size if adds_up else 0.0
    return rows


def linear(low: float, high: float) -> Scale:
    """Return where a value stands between two others: 0 and 1 for those."""
    width = (high - low) or 1.0
    return lambda value: (value - low) / width


def round_values(low: float, high: float, *, about: int = 6) -> list[float]:
    """Return round values (1, 2 or 5 times a power of ten) between two others, about so many."""
    if high <= low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((one * power for one in (1, 2, 5) if one * power >= rough), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def round_log_values(low: float, high: float) -> list[float]:
    """Return round values between two others for a logarithmic axis, three to seven of them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)):
        found = [d * 10.0**power for power in range(first, last + 1) for d in digits]
        found = [value for value in found if low <= value <= high]
        if len(found) >= 3:
            return found[:: -(-len(found) // 7)]
    return [value for value in round_values(low, high, about=4) if value >= low]


def shortened(name: str) -> str:
    """Return a name as it has room beside a chart."""
    return name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS - 1]}…"


def signed_money(usd: float | Decimal) -> str:
    """Return an amount with its sign: "$12", "−$3", "$0".

    >>> signed_money(Decimal(-3)), signed_money(0.0)
    ('−$3', '$0')
    """
    if not usd:
        return "$0"
    return f"−{format_money(-usd)}" if usd < 0 else format_money(usd)  # noqa: RUF001


def percent(share: float) -> str:
    """Return a share as an attribute: "12.35%"."""
    return f"{share * 100:.2f}%"


def _x(place: Place) -> str:
    return percent(place[0])


def _y(place: Place) -> str:
    return percent(1 - place[1])


def _points(places: Iterable[Place]) -> str:
    return " ".join(f"{x * 1000:.1f},{(1 - y) * 1000:.1f}" for x, y in places)


def _stretched(inner: Markup) -> Markup:
    """Return what is drawn in thousandths, stretched over the chart."""
    return Markup('<svg viewBox="0 0 1000 1000" preserveAspectRatio="none">{}</svg>').format(inner)


def _text(
    kind: str, place: Place, text: str, anchor: str, *, right: float = 0, down: float = 0
) -> Markup:
    return Markup(
        '<text class="{}" x="{}" y="{}" dx="{}" dy="{}" text-anchor="{}">{}</text>'
    ).format(kind, _x(place), _y(place), right, down + TEXT_DOWN, anchor, clean(text))
