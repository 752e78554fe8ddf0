"""A little HTML for notebooks: every text that is given is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

LEFT = 'style="text-align: left"'


def text(words: str) -> str:
    """Return words as HTML."""
    return escape(words)


def bold(words: str) -> str:
    """Return words as bold HTML."""
    return f"<b>{escape(words)}</b>"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts."""
    head = "".join(f"<th {LEFT}>{escape(cell)}</th>" for cell in heading)
    body = ("".join(f"<td {LEFT}>{escape(cell)}</td>" for cell in row) for row in rows)
    lines = "".join(f"<tr>{cells}</tr>" for cells in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def page(lines: Iterable[str], inside: str = "", *, end: str = "") -> str:
    """Return lines of HTML, what stands below them, and a last line."""
    first = "<br>".join(lines)
    last = f"<p>{end}</p>" if end else ""
    return f"<div><p>{first}</p>{inside}{last}</div>"
