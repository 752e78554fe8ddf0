"""A text with tables that is made from a report: a request, a statement of charges, a list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..figures import clean, cut
from ..tables.tables import Table
from .html import View, environment, style, view_of
from .markdown import LONGEST_SENTENCE, MOST_CHARACTERS, ROWS, sentence, table_lines


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A part of a document with a title: sentences, then tables, then a list."""

    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    points: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Document:
    """What is written from a report for one purpose; names in it are not yet made safe."""

    kind: str
    """What it is, in a few words."""
    title: str
    subtitle: str
    lead: tuple[str, ...]
    """The sentences that it begins with."""
    passages: tuple[Passage, ...]
    most_rows: int
    """Rows of a table on the page; those left out are one row with their sum."""


@dataclass(frozen=True)
class _Shown:
    title: str
    sentences: list[str]
    views: list[View]
    points: list[str]


def document_html(document: Document) -> str:
    """Return the document as one HTML file, without script or network, for screen and paper."""
    from markupsafe import Markup

    text = (
        environment()
        .get_template("document.html.j2")
        .render(
            css=Markup(style()),
            kind=document.kind,
            headline=_short(document.title),
            subtitle=_short(document.subtitle),
            lead=[_short(line) for line in document.lead],
            passages=[_shown(one, document.most_rows) for one in document.passages],
        )
    )
    return text.lstrip().replace(" %", "&nbsp;%") + "\n"


def document_markdown(document: Document) -> str:
    """Return the document as GitHub's Markdown, of fewer than 65,000 characters."""
    text = ""
    for rows in ROWS:
        text = "\n".join(_lines(document, min(rows, document.most_rows))) + "\n"
        if len(text) < MOST_CHARACTERS:
            break
    return text


def _lines(document: Document, rows: int) -> Iterator[str]:
    yield f"## {sentence(document.title)}"
    yield from ("", f"{document.kind}. {sentence(document.subtitle)}", "")
    for line in document.lead:
        yield from (sentence(line), "")
    for passage in document.passages:
        yield from (f"### {sentence(passage.title)}", "")
        for line in passage.sentences:
            yield from (sentence(line), "")
        for table in passage.tables:
            yield from (f"**{sentence(table.caption)}**", "", *table_lines(table, rows), "")
        yield from (f"- {sentence(line)}" for line in passage.points)
        yield from ("",) if passage.points else ()


def _shown(passage: Passage, most_rows: int) -> _Shown:
    return _Shown(
        _short(passage.title),
        [_short(line) for line in passage.sentences],
        [view_of(table, most=most_rows) for table in passage.tables],
        [_short(line) for line in passage.points],
    )


def _short(text: str) -> str:
    return cut(clean(text), LONGEST_SENTENCE)
