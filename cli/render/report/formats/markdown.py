"""A budget report as Markdown that fits the comment of a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .....planner.budget.report.report import BudgetReport
from .. import words
from ..figures import clean, cut
from ..sections import Section, sections
from ..tables.money_tables import options_table
from ..tables.tables import Column, Table

MOST_CHARACTERS = 65_000
"""GitHub refuses a comment of more than 65,536 characters, "body is too long":
https://github.com/dead-claudia/github-limits"""
ROWS = (40, 20, 10, 5, 2)
"""Rows of a table: the most of these with which the whole is short enough."""
LONGEST_NAME = 60
LONGEST_CELL = 240
LONGEST_SENTENCE = 500
MOST_SENTENCES = 12
RULES = {"text": ":---", "month": ":---"}

_URL = re.compile(r"(https?://[^\s<>|\"'`\\]+)")
_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~^$]|:(?=//))")
_FIRST = re.compile(r"^([-+=]|\d+(?=[.)]))")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MENTION = re.compile(r"@(?=\w)")


def render_markdown(report: BudgetReport) -> str:
    """Return the report as GitHub's Markdown, of fewer than 65,000 characters.

    The first page is open, what follows it folded up. Long tables end with the sum of the rows
    that are left out, as many as the length asks for.
    """
    text = ""
    for rows in ROWS:
        text = "\n".join([*_first_page(report), *_rest(report, rows)]) + "\n"
        if len(text) < MOST_CHARACTERS:
            break
    return text


def escaped(text: str) -> str:
    """Return a text that is shown as it is: no markup, no HTML, no mention of a user."""
    plain = "".join(_ENTITIES.get(character, character) for character in clean(text))
    # GitHub looks for mentions once the rest is rendered; a character of no width is in the way.
    plain = _MENTION.sub("@&#8203;", _SPECIAL.sub(r"\\\1", plain))
    return _FIRST.sub(_spelled, plain)


def _spelled(found: re.Match[str]) -> str:
    """Return what would begin a list or a heading so that it does not."""
    text = found.group()
    return f"{text}&#8203;" if text.isdigit() else f"\\{text}"


def _first_page(report: BudgetReport) -> Iterable[str]:
    yield f"## {sentence(words.headline(report))}"
    yield from ("", sentence(words.subtitle(report)), "")
    for line in words.first_page(report):
        yield from (sentence(line), "")
    verdict = words.verdict(report)
    if verdict:
        yield from (f"**{sentence(verdict)}**", "")
    yield from ("| | | |", "| :--- | ---: | :--- |")
    for figure in words.key_figures(report):
        yield _row([figure.label, f"**{figure.value}**", sentence(figure.note)])
    options = options_table(report)
    yield from ("", f"### {options.caption}", "", *table_lines(options, len(options.rows)))
    yield from _listed("What would change it", words.movers(report))
    yield from _listed("Risks", report.risks)
    yield from _listed("Not included", report.not_included)


def _rest(report: BudgetReport, rows: int) -> Iterable[str]:
    for section in sections(report):
        yield from _folded(section, rows)
    yield from ("<details><summary>Words used, dates of the prices</summary>", "")
    yield from (f"- **{word}**: {meaning}" for word, meaning in words.WORDS)
    yield ""
    yield from (f"- {sentence(line)}" for line in words.dates(report))
    yield from ("", "</details>")


def _folded(section: Section, rows: int) -> Iterable[str]:
    yield from (f"<details><summary>{section.title}</summary>", "", section.intro, "")
    for part in section.parts:
        yield from (f"**{part.table.caption}**", "", *table_lines(part.table, rows), "")
    yield from (f"- {sentence(note)}" for note in section.notes)
    yield from ("</details>", "")


def _listed(title: str, sentences: Sequence[str]) -> Iterable[str]:
    if not sentences:
        return
    yield from ("", f"### {title}", "")
    yield from (f"- {sentence(line)}" for line in sentences[:MOST_SENTENCES])
    if len(sentences) > MOST_SENTENCES:
        yield f"- {len(sentences) - MOST_SENTENCES} more"
    yield ""


def table_lines(table: Table, most: int) -> Iterable[str]:
    """Yield the lines of a table of at most so many rows, the others as their sum."""
    rows, left = table.shortened(most)
    yield _row([column.heading for column in table.columns])
    yield _row([RULES.get(column.kind, "---:") for column in table.columns])
    for row in rows:
        yield _row([_cell(column, text) for column, text in zip(table.columns, row, strict=True)])
    if left is not None:
        yield _row(left)
    total = table.total_texts()
    if total is not None:
        yield _row([f"**{text}**" if text else "" for text in total])


def _cell(column: Column, text: str) -> str:
    if column.has_links:
        return "".join(
            f"<{part}>" if index % 2 else escaped(part)
            for index, part in enumerate(_URL.split(text))
        )
    if column.kind != "text":
        return text
    return escaped(cut(text, LONGEST_NAME if column.is_name else LONGEST_CELL))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def sentence(text: str) -> str:
    """Return a sentence as text without markup, cut where it is too long."""
    return escaped(cut(clean(text), LONGEST_SENTENCE)).replace("\\$", "$")
