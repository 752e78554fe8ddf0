"""Notes as a reader sees them: what several lines of a file do is said once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from os.path import commonprefix

OF_A_LINE = re.compile(r"(?P<file>\S+\.py):(?P<line>\d+) (?P<text>.+)", re.DOTALL)
MOST_PLACES = 4
"""Lines that a note names; of more, how many there are."""


def joined_notes(notes: Iterable[str]) -> list[str]:
    """Return notes with those joined that say the same of other lines, where the first one stands.

    "model.py:7 checks values" and "model.py:9 checks values" are "model.py:7 and :9 each checks
    values".
    """
    places: dict[str, list[tuple[str, str]]] = {}
    for note in notes:
        found = OF_A_LINE.fullmatch(note)
        text = note if found is None else found["text"]
        several = places.setdefault(text, [])
        if found is not None and (found["file"], found["line"]) not in several:
            several.append((found["file"], found["line"]))
    return _joined_consequences([_said(text, of) for text, of in places.items()])


WITH_CONSEQUENCE = re.compile(r"(?P<cause>[^:]+): (?P<what>[^.:]+)\. (?P<advice>.+)", re.DOTALL)


def _joined_consequences(notes: list[str]) -> list[str]:
    """Return notes with those joined that differ in the consequence of one cause alone.

    "X: what runs is slower. Do Y" and "X: what runs takes memory. Do Y" are "X: what runs is
    slower, or takes memory. Do Y".
    """
    whats: dict[tuple[str, str], list[str]] = {}
    for note in notes:
        found = WITH_CONSEQUENCE.fullmatch(note)
        key = (note, "") if found is None else (found["cause"], found["advice"])
        whats.setdefault(key, []).append("" if found is None else found["what"])
    return [
        cause if not advice else f"{cause}: {_alternatives(several)}. {advice}"
        for (cause, advice), several in whats.items()
    ]


def _alternatives(whats: list[str]) -> str:
    """Return clauses as one, in which the words that all begin with are said once."""
    words = [what.split(" ") for what in whats]
    same = len(commonprefix(words)) if len(words) > 1 else 0
    return ", or ".join([whats[0], *(" ".join(one[same:]) for one in words[1:])])


def _said(text: str, places: list[tuple[str, str]]) -> str:
    if not places:
        return text
    names: list[str] = []
    for i, (file, line) in enumerate(places[:MOST_PLACES]):
        is_same_file = i > 0 and places[i - 1][0] == file
        names.append(f":{line}" if is_same_file else f"{file}:{line}")
    if len(places) == 1:
        return f"{names[0]} {text}"
    more = len(places) - len(names)
    last = names.pop() if not more else f"{more} other {'line' if more == 1 else 'lines'}"
    return f"{', '.join(names)} and {last} each {text}"
