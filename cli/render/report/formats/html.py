"""A budget report as one HTML file: no script, no network, light and dark, on paper and a phone.

Charts need the extra `report`; without it, tables with bars say the same. The page aims at WCAG
2.2 AA: https://www.w3.org/TR/WCAG22/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from .....planner.budget.report.report import BudgetReport
from .. import words
from ..charts.charts import CHARTS
from ..charts.drawing import BAND, COLOURS, INK, LIMIT, LINE, MUTED, PAPER
from ..charts.svg import as_svg, can_draw
from ..figures import about_usd, clean, least, number, usd
from ..sections import Part, Section, sections
from ..tables.tables import Table

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

MOST_ROWS = 300
"""Rows of a table; those left out are one row with their sum."""
MOST_OPEN_ROWS = 30
"""A table of more rows is folded up."""
MOST_ROWS_BESIDE_A_CHART = 12
MOST_COLUMNS_BESIDE_A_CHART = 6
"""A wider table has the whole width, below its chart."""
MOST_COLUMNS_WITH_BARS = 5
TEMPLATES = ("macros.html.j2", "report.html.j2", "document.html.j2")
_URL = re.compile(r"(https?://[^\s<>\"'`\\]+[^\s<>\"'`\\.,;:)])")


@dataclass(frozen=True)
class Row:
    """A row of a table as the template shows it."""

    cells: list[str]
    bar: str | None
    """Length of its bar in percent."""
    is_flagged: bool


@dataclass(frozen=True)
class View:
    """A table as the template shows it."""

    table: Table
    rows: list[Row]
    left: list[str] | None
    """The sum of the rows that are left out."""
    total: list[str] | None
    bar_column: int | None
    """Number of the column with bars, from 0."""
    is_folded: bool

    @property
    def is_wide(self) -> bool:
        """Whether there is no room for it beside a chart."""
        return len(self.table.columns) > MOST_COLUMNS_BESIDE_A_CHART

    @property
    def label(self) -> str:
        """What the fold is called."""
        rows = len(self.table.rows)
        return f"Table: {self.table.caption[0].lower()}{self.table.caption[1:]} ({rows:,} rows)"


@dataclass(frozen=True)
class Chart:
    """A chart as the template shows it."""

    caption: str
    svg: Markup


@dataclass(frozen=True)
class Block:
    """Charts and the table that has their figures."""

    charts: list[Chart]
    view: View


@dataclass(frozen=True)
class Shown:
    """A section as the template shows it."""

    id: str
    title: str
    intro: str
    blocks: list[Block]


def render_html(report: BudgetReport, *, draws: bool | None = None) -> str:
    """Return the report as a page that needs nothing else.

    Args:
        report: What to show.
        draws: Whether it has charts; None: where vl-convert is installed.
    """
    from markupsafe import Markup

    draws = can_draw() if draws is None else draws
    options = [
        {
            "name": one.name,
            "is_planned": one.is_planned,
            "usd": usd(least(one.total.usd, one.total.lower_bound)),
            "low": about_usd(one.total.p10_usd),
            "high": about_usd(one.total.p90_usd),
            "days": number(one.days),
            "ends": str(one.ends),
            "text": "" if one.is_planned else words.beside_plan(one, report.options),
        }
        for one in report.options
    ]
    page = environment().get_template("report.html.j2")
    text = page.render(
        css=Markup(style()),
        headline=words.headline(report),
        subtitle=words.subtitle(report),
        summary=[clean(line) for line in words.first_page(report)],
        verdict=words.verdict(report),
        is_over=words.is_over(report),
        standing=words.standing(report),
        figures=words.key_figures(report),
        options=options,
        movers=words.movers(report),
        risks=[clean(line) for line in report.risks],
        not_included=[clean(line) for line in report.not_included],
        sections=[_shown(section, report, draws=draws) for section in sections(report)],
        words=words.WORDS,
        dates=words.dates(report),
    )
    # A percent sign stays with its number at the end of a line.
    return text.lstrip().replace(" %", "&nbsp;%") + "\n"


def _shown(section: Section, report: BudgetReport, *, draws: bool) -> Shown:
    blocks = []
    for part in section.parts:
        charts = _charts(part, report) if draws else []
        blocks.append(Block(charts, view_of(part.table, has_chart=bool(charts))))
    return Shown(section.id, section.title, section.intro, blocks)


def _charts(part: Part, report: BudgetReport) -> list[Chart]:
    from markupsafe import Markup

    found = []
    for name in part.charts:
        caption, draw = CHARTS[name]
        spec = draw(report)
        if spec is not None:
            label = f"Chart: {caption}. The table below has its figures."
            found.append(Chart(caption, Markup(as_svg(spec, label))))
    return found


def view_of(table: Table, *, has_chart: bool = False, most: int | None = None) -> View:
    """Return a table as the template shows it: at most so many rows, and the sum of the others."""
    texts, left = table.shortened(MOST_ROWS if most is None else most)
    column = _bar_column(table)
    amounts = [Decimal(0) if column is None else _amount(row[column]) for row in table.rows]
    largest = max(amounts, default=Decimal(0))
    rows = [
        Row(cells, _percent(amount, largest), index in table.flagged)
        for index, (cells, amount) in enumerate(zip(texts, amounts, strict=False))
    ]
    is_folded = len(rows) > (MOST_ROWS_BESIDE_A_CHART if has_chart else MOST_OPEN_ROWS)
    return View(table, rows, left, table.total_texts(), column, is_folded)


def _bar_column(table: Table) -> int | None:
    """Return the number of the column that bars compare, where there is room for them."""
    if len(table.columns) > MOST_COLUMNS_WITH_BARS:
        return None
    adding = [index for index, column in enumerate(table.columns) if column.adds]
    return next((index for index in adding if table.columns[index].kind == "usd"), None)


def _amount(value: object) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(0)


def _percent(amount: Decimal, largest: Decimal) -> str | None:
    return f"{amount / largest * 100:.1f}" if amount > 0 and largest > 0 else None


@cache
def environment() -> Environment:
    """Return the templates of pages: what is put into them is text, never markup."""
    from jinja2 import DictLoader, Environment, StrictUndefined

    folder = files("gpuplan.cli.render.report") / "templates"
    made = Environment(
        loader=DictLoader({name: (folder / name).read_text("utf-8") for name in TEMPLATES}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["linked"] = _linked
    return made


def _linked(text: str) -> Markup:
    """Return a text whose addresses are links; all else of it is escaped."""
    from markupsafe import Markup, escape

    parts = [
        Markup('<a href="{0}" rel="noreferrer">{0}</a>').format(part) if index % 2 else escape(part)
        for index, part in enumerate(_URL.split(text))
    ]
    return Markup("").join(parts)


def style() -> str:
    """Return the style sheet, with a rule for each colour of the charts: they follow the scheme."""
    text = (files("gpuplan.cli.render.report") / "templates/report.css").read_text("utf-8")
    names = {colour: f"c{index}" for index, colour in enumerate(COLOURS, start=1)}
    names |= {INK: "ink", MUTED: "muted", LINE: "line", PAPER: "paper", BAND: "band", LIMIT: "bad"}
    rules = [
        f'svg [{what}="{colour}"]{{{what}:var(--{name})}}'
        for colour, name in names.items()
        for what in ("fill", "stroke")
    ]
    return text + "\n".join(rules)
