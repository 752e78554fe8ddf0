"""A view as HTML: one template for all pages; whatever a name holds, it stays text."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from ..render.report.figures import clean

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

NAVIGATION = (
    ("/", "Overview"),
    ("/launches", "Launches"),
    ("/prices", "Prices"),
)
LINES = ("spent", "forecast", "planned", "limit", "range")
"""Marks of a legend that are lines; the others are areas."""
REFRESH_S = 10
"""Between two looks of a page that changes by itself."""


@dataclass(frozen=True)
class Link:
    """A cell of a table that leads to another page."""

    text: str
    href: str


@dataclass(frozen=True)
class Amount:
    """A cell of a table that is sorted by its value; None, not known, stands last."""

    text: str
    value: Decimal | float | None


Cell = str | Link | Amount


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A table: headings, those with ">" before them of numbers, and rows of as many cells."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str
    """What is said where there are no rows."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart; None: what it would show is not known."""

    caption: str
    svg: Markup | None
    empty: str = "unknown"
    """What is said where there is no chart."""
    link: str | None = None
    """Where the caption leads to."""
    legend: tuple[tuple[str, str], ...] = ()
    """Class of a mark, and what it means."""
    text: str = ""
    """The chart in a sentence."""
    is_over: bool = False
    """Whether the sentence is a warning."""
    is_wide: bool = True
    """Whether it has the width of the page; else two stand side by side where there is room."""


@dataclass(frozen=True)
class Tile:
    """A figure that is read first."""

    name: str
    value: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """The figures that are read first."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Sentences as a list."""

    caption: str
    lines: tuple[str, ...]


Block = Rows | Figure | Tiles | Lines


@dataclass(frozen=True, kw_only=True)
class View:
    """What is on a page."""

    title: str
    subtitle: str = ""
    links: tuple[Link, ...] = ()
    note: str = ""
    """How far what is shown can be trusted; renewed with it."""
    commands: tuple[str, ...] = ()
    """Commands that print the same, or more; to be copied."""
    blocks: tuple[Block, ...] = field(default=())
    refreshes: bool = False


def render(view: View, *, path: str) -> str:
    """Return a view as a page.

    Args:
        view: What is on it.
        path: Its address, to mark it in the navigation.
    """
    page = _environment().get_template("page.html.j2")
    return page.render(
        view=view,
        path=path,
        navigation=NAVIGATION,
        lines=LINES,
        refresh_s=REFRESH_S if view.refreshes else None,
    )


def style() -> str:
    """Return the style sheet: that of the report, and what the pages add."""
    report = files("gpuplan.cli.render.report") / "templates/report.css"
    return report.read_text("utf-8") + asset("ui.css")


def asset(name: str) -> str:
    """Return a file of the templates' folder."""
    return (files("gpuplan.cli.pages") / "templates" / name).read_text("utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined

    made = Environment(
        loader=DictLoader({"page.html.j2": asset("page.html.j2")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["clean"] = clean
    made.tests["figure"] = lambda block: isinstance(block, Figure)
    made.tests["tiles"] = lambda block: isinstance(block, Tiles)
    made.tests["amount"] = lambda cell: isinstance(cell, Amount)
    made.tests["rows"] = lambda block: isinstance(block, Rows)
    made.tests["link"] = lambda cell: isinstance(cell, Link)
    return made
