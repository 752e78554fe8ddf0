"""What the doctor found, as text for a terminal: one line for each thing, its remedy below."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rich.text import Text

from ...profiles.doctor.checks import Check, Diagnosis

MARKS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "broken": ("✗", "red")}


def render_doctor(diagnosis: Diagnosis, *, width: int) -> list[Text]:
    """Return the lines of `gpuplan doctor`."""
    label_width = max(len(check.name) for check in diagnosis.checks) + 2
    lines = [line for check in diagnosis.checks for line in _check(check, label_width, width)]
    return [*lines, Text(), Text(_verdict(diagnosis), "bold")]


def _check(check: Check, label_width: int, width: int) -> Iterable[Text]:
    mark, colour = MARKS[check.state]
    indent = label_width + 2
    text = check.found if check.fix is None else f"{check.found}\nTo fix: {check.fix}"
    parts = [
        part
        for line in text.splitlines()
        for part in textwrap.wrap(line, width - indent, break_long_words=False)
    ]
    yield Text.assemble((mark, colour), f" {check.name:<{label_width}}", parts[0])
    for part in parts[1:]:
        yield Text(f"{'':{indent}}{part}")


def _verdict(diagnosis: Diagnosis) -> str:
    if not diagnosis.broken:
        return "Nothing is broken."
    return "1 thing is broken." if diagnosis.broken == 1 else f"{diagnosis.broken} are broken."
