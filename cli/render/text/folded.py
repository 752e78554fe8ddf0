"""Lines that are longer than a screen, folded under themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.text import Text

from .columns import SEPARATOR, comfortable

BETWEEN_COLUMNS = re.compile(r"^\s*\S+(?: \S+){0,3}(?:\s{2,})")
"""A label and the gap behind it: what follows is folded under its own first letter."""
FURTHER_IN = 2
WIDEST_INDENT = 0.4
"""Of a line: what is folded under a label further in has too little room."""


def folded(lines: Iterable[Text], screen_width: int) -> Iterator[Text]:
    """Yield the lines, those that are too long in parts that fit.

    A part ends between two facts (" · ") if that leaves it half full, else between two words. A
    word that is longer than a line stays whole.

    Args:
        lines: With their styles, which stay.
        screen_width: Columns of the screen; very narrow ones are taken for 60.
    """
    width = comfortable(screen_width)
    for line in lines:
        yield from _parts(line, width)


def _parts(line: Text, width: int) -> Iterator[Text]:
    if cell_len(line.plain) <= width:
        yield line
        return
    indent = _indent(line.plain, width)
    rest = line
    while cell_len(rest.plain) > width:
        at = _break(rest.plain, width, least=indent)
        if at is None:
            break
        head, tail = rest.divide([at])
        head.rstrip()
        yield head
        start = len(tail.plain) - len(tail.plain.lstrip())
        rest = Text(" " * indent) + tail[start:]
    yield rest


def _indent(plain: str, width: int) -> int:
    """Return where the parts behind the first begin."""
    margin = len(plain) - len(plain.lstrip())
    label = BETWEEN_COLUMNS.match(plain)
    if label is not None and margin < label.end() <= WIDEST_INDENT * width:
        return label.end()
    return margin + FURTHER_IN


def _break(plain: str, width: int, *, least: int) -> int | None:
    """Return where to end the first part; None where nothing ends in time."""
    most = _letters_within(plain, width)
    between = plain.rfind(SEPARATOR, 0, most + 1)
    if between - least > (most - least) / 2:
        return between + len(SEPARATOR) - 1 if between + 2 <= most else between
    space = plain.rfind(" ", 0, most + 1)
    return space if plain[:space].strip() and space > least else None


def _letters_within(plain: str, width: int) -> int:
    """Return how many letters take up no more cells."""
    cells = 0
    for count, letter in enumerate(plain):
        cells += cell_len(letter)
        if cells > width:
            return count
    return len(plain)
