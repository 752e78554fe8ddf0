"""A grid of text as a terminal table that fits its width, or as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from ...terminal.output import Screen
from .columns import GAP, Align, column_widths, cut, padded, to_text, total_width, wrapped

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
    shown = [i for i, column in enumerate(grid.columns) if screen.width >= column.from_width]
    columns = [grid.columns[i] for i in shown]
    rows = [[row[i] for i in shown] for row in grid.rows]
    headings = [column.heading for column in columns]
    lines = [Text(title, style="bold")] if title else []
    widths = _widths(columns, [headings, *rows] if header else rows, screen.width)
    if header:
        lines.append(_line(headings, columns, widths, style="bold"))
    else:
        widths[-1] = max(SMALLEST, screen.width - total_width([*widths[:-1], 0]))
    for number, row in enumerate(rows):
        if number in grid.breaks:
            lines.append(Text())
        first, *more = [row[-1]] if header else wrapped(row[-1], widths[-1]) or [""]
        lines.append(_line([*row[:-1], first], columns, widths))
        blanks = [""] * (len(row) - 1)
        lines += [_line([*blanks, rest], columns, widths) for rest in more]
    return to_text(lines, colour=screen.color)


def markdown_table(grid: Grid) -> str:
    """Return the grid as a Markdown table, all columns and nothing cut."""
    lines = [
        _markdown_row(column.heading for column in grid.columns),
        _markdown_row("--:" if column.right else "---" for column in grid.columns),
    ]
    lines += [_markdown_row(row) for row in grid.rows]
    return "".join(f"{line}\n" for line in lines)


def _line(
    cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], style: str = ""
) -> Text:
    """Return one row; what is longer than its column is cut, with "…"."""
    aligns: list[Align] = ["right" if column.right else "left" for column in columns]
    short = [cut(cell, width) for cell, width in zip(cells, widths, strict=True)]
    filled = zip(padded(short, widths, aligns), columns, strict=True)
    parts = [Text(cell, style="bold" if column.key else style) for cell, column in filled]
    return Text(GAP, style=style).join(parts)


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], screen_width: int
) -> list[int]:
    """Return the width of each column; those that may shrink share what is missing.

    Rather a line too long than a number cut in two: the others keep their width.
    """
    widths = column_widths(rows)
    shrinkable = [i for i, column in enumerate(columns) if column.shrink]
    while total_width(widths) > screen_width and any(widths[i] > SMALLEST for i in shrinkable):
        widths[max(shrinkable, key=lambda i: widths[i])] -= 1
    return widths


def _markdown_row(cells: Iterable[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
