"""A time line: what ran or is planned when, a row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from ..render.report.figures import clean
from .drawing import bar_row, bar_rows, line, percent, shortened, stretch
from .time_axis import TimeAxis

ROOM = 0.06
"""Beyond the ends of what is drawn, as a share of it."""
SHORTEST_S = 600
SHORTEST_SHARE = 0.004
"""Of a bar of the time line: what took minutes of weeks can still be seen."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A time in which something ran, or is planned to."""

    begin: datetime
    end: datetime
    kind: str
    """A class of `ui.css`: how it ended."""
    title: str


@dataclass(frozen=True, kw_only=True)
class SpanRow:
    """A row of a time line."""

    name: str
    link: str | None
    spans: tuple[Span, ...]
    text: str


def time_line(rows: Sequence[SpanRow], *, now: datetime | None, label: str) -> Markup | None:
    """Return rows of what ran when, below them the times; None where there are none.

    Args:
        rows: From top to bottom.
        now: Drawn as a line through all rows; None: not drawn.
        label: What they show, for a screen reader.
    """
    spans = [span for row in rows for span in row.spans]
    if not spans:
        return None
    begin = min(span.begin for span in spans)
    end = max(span.end for span in spans)
    end = end if now is None else max(end, now)
    whole = max(end - begin, timedelta(seconds=SHORTEST_S))
    axis = TimeAxis(begin - whole * 0.01, begin + whole * (1 + ROOM))
    ticks = axis.ticks()
    drawn = []
    for row in rows:
        marks = [line("grid", (share, 0), (share, 1)) for share, _ in ticks]
        for span in row.spans:
            left = axis.share(span.begin)
            right = max(axis.share(span.end), left + SHORTEST_SHARE)
            marks.append(stretch(f"span {span.kind}", left, right, span.title))
        if now is not None and axis.begin <= now <= axis.end:
            marks.append(line("today", (axis.share(now), 0), (axis.share(now), 1)))
        drawn.append(bar_row(_named(row), marks, row.text))
    labels = Markup("").join(
        Markup('<text class="tick{}" x="{}" y="14" text-anchor="middle">{}</text>').format(
            " minor" if index % 2 else "", percent(share), text
        )
        for index, (share, text) in enumerate(ticks)
    )
    drawn.append(
        Markup('<li class="axis" aria-hidden="true"><span></span><svg>{}</svg><span></span></li>')
        .format(labels)
    )  # fmt: skip
    return bar_rows(drawn, label, kind="bars times")


def _named(row: SpanRow) -> str | Markup:
    if row.link is None:
        return shortened(clean(row.name))
    return Markup('<a href="{}">{}</a>').format(row.link, shortened(clean(row.name)))
