"""Lines of text for a terminal: aligned columns that fit its width, and lists that wrap whole."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Literal

from rich.cells import cell_len, set_cell_size
from rich.text import Text

Align = Literal["left", "right"]

NARROWEST = 60
WIDEST = 120
GAP = "  "
SEPARATOR = " · "
CONTINUES = " \\"
"""At the end of a line that a shell joins with the next."""


def comfortable(width: int) -> int:
    """Return how many of the columns that there are to fill: lines may be too long to read."""
    return min(max(width, NARROWEST), WIDEST)


def to_text(lines: Iterable[Text], *, colour: bool) -> str:
    """Return the lines as one string, with terminal colours if asked for."""
    if not colour:
        plain = (line.plain.rstrip().expandtabs() for line in lines)
        return "".join(f"{line}\n" for line in plain)
    from rich.console import Console

    stream = io.StringIO()
    console = Console(
        file=stream, width=10_000, force_terminal=True, color_system="standard", highlight=False
    )
    for line in lines:
        line.rstrip()
        console.print(line, soft_wrap=True)
    return stream.getvalue()


def column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column, in terminal cells."""
    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def total_width(widths: Sequence[int]) -> int:
    """Return the width of a line of columns with the gaps between them."""
    return sum(widths) + len(GAP) * (len(widths) - 1)


def padded(cells: Sequence[str], widths: Sequence[int], aligns: Sequence[Align]) -> list[str]:
    """Return the cells of one row, each filled up to the width of its column."""
    found = []
    for cell, width, align in zip(cells, widths, aligns, strict=True):
        space = " " * (width - cell_len(cell))
        found.append(cell + space if align == "left" else space + cell)
    return found


def cut(cell: str, width: int) -> str:
    """Return a cell that fits its width; "…" ends one that was longer."""
    return cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"


def aligned(cells: Sequence[str], widths: Sequence[int], aligns: Sequence[Align]) -> str:
    """Return one row with every cell padded to its column."""
    return GAP.join(padded(cells, widths, aligns)).rstrip()


def wrapped(text: str, width: int) -> list[str]:
    """Return running text as lines of whole words; only a word longer than a line is cut."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width)
    return [line.plain for line in Text(text).wrap(console, width, overflow="fold")]


def wrapped_options(options: str, width: int) -> list[str]:
    """Return options of a command as lines that a shell reads as one, each option whole."""
    first, *others = options.split(" --")
    lines = [first]
    for option in others:
        joined = f"{lines[-1]} --{option}"
        if cell_len(joined) <= width - len(CONTINUES):
            lines[-1] = joined
        else:
            lines[-1] += CONTINUES
            lines.append(f"--{option}")
    return lines


def packed(
    items: Iterable[str], *, width: int, indent: int, separator: str = SEPARATOR
) -> list[str]:
    """Return lines that hold the items whole, as many to a line as fit."""
    margin, tail = " " * indent, separator.rstrip(" ·")
    lines: list[str] = []
    current = ""
    every = list(items)
    for place, item in enumerate(every, start=1):
        longer = f"{current}{separator}{item}" if current else item
        # What ends a line that others follow has to fit on it too.
        ending = tail if place < len(every) else ""
        if current and indent + cell_len(longer + ending) > width:
            lines.append(f"{margin}{current}{separator.rstrip()}".rstrip(" ·"))
            longer = item
        current = longer
    return [*lines, margin + current] if current else lines
