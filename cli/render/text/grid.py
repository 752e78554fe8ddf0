"""A grid of text as a terminal table that fits its width, or as Markdown."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...terminal.output import Screen

GAP = 2
SMALLEST = 12
"""A column that gives way keeps at least this many characters."""


@dataclass(frozen=True)
class Column:
    """One column: how it is aligned, and how it behaves when the screen is narrow."""

    heading: str
    right: bool = False
    key: bool = False
    """Stands out: the name of what the row is about."""
    shrink: bool = False
    """Its cells may be cut, with "…", when the table is too wide."""
    from_width: int = 0
    """Shown only on screens of at least this many columns."""


@dataclass(frozen=True)
class Grid:
    """Columns and rows of ready text."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    breaks: Sequence[int] = field(default_factory=tuple)
    """Rows before which a blank line sets a section off."""


def text_table(grid: Grid, screen: Screen, *, title: str | None = None, header: bool = True) -> str:
    """Return the grid as a table of at most the screen's width, one line for each row.

    Columns that give way are cut first; a last column of running text is wrapped under itself.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = [i for i, column in enumerate(grid.columns) if screen.width >= column.from_width]
    widths = _widths(grid, shown, screen.width, header)
    is_prose = not header
    needed = 0 if is_prose else sum(widths.values()) + GAP * len(shown)
    table = Table(
        box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=header, header_style="bold"
    )
    for i in shown:
        column = grid.columns[i]
        wraps = is_prose and i == shown[-1]
        table.add_column(
            Text(column.heading),
            justify="right" if column.right else "left",
            style="bold" if column.key else "",
            width=None if wraps else widths[i],
            no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis",
        )
    for number, row in enumerate(grid.rows):
        if number in grid.breaks:
            table.add_row()
        table.add_row(*(Text(row[i]) for i in shown))
    stream = io.StringIO()
    console = Console(
        file=stream,
        # Rather a line too long than a number cut in two.
        width=max(screen.width, needed),
        force_terminal=screen.color,
        color_system="standard" if screen.color else None,
        highlight=False,
        legacy_windows=False,
    )
    if title:
        console.print(Text(title, style="bold"))
    console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def markdown_table(grid: Grid) -> str:
    """Return the grid as a Markdown table, all columns and nothing cut."""
    lines = [
        _markdown_row(column.heading for column in grid.columns),
        _markdown_row("--:" if column.right else "---" for column in grid.columns),
    ]
    lines += [_markdown_row(row) for row in grid.rows]
    return "".join(f"{line}\n" for line in lines)


def _widths(grid: Grid, shown: Sequence[int], screen_width: int, header: bool) -> dict[int, int]:
    """Return the width of each shown column; those that may shrink share what is missing."""
    widths = {
        i: max([len(grid.columns[i].heading) if header else 0, *(len(row[i]) for row in grid.rows)])
        for i in shown
    }
    excess = sum(widths.values()) + GAP * (len(shown) - 1) - screen_width
    shrinkable = [i for i in shown if grid.columns[i].shrink]
    while excess > 0 and any(widths[i] > SMALLEST for i in shrinkable):
        widest = max(shrinkable, key=lambda i: widths[i])
        widths[widest] -= 1
        excess -= 1
    return widths


def _markdown_row(cells: Iterable[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
