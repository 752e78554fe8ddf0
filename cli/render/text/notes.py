"""Notes as a reader sees them: what several lines of a file do is said once."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
    return [_said(text, of) for text, of in places.items()]


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
