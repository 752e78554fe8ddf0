"""The answers that README.md and two pages of docs/ print are those of the command."""

import contextlib
import functools
import io
import re
from pathlib import Path

import pytest

from gpuplan.cli.main import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
ASKED = "estimate examples/gpt2.py --tokens 10B --provider aws,gcp,azure"
IN_LIMITS = (
    "estimate examples/gpt2.py --tokens 10B --global-batch 512 --provider aws --deadline 24h"
    " --budget 100 --top 4"
)
QUESTIONS = {
    "README.md": ASKED,
    "docs/how-to-read-an-answer.md": ASKED,
    "docs/tutorial.md": IN_LIMITS,
}
PAGES = tuple(QUESTIONS)
BLOCK = re.compile(r"(?<=```text\n)gpt2 · .*?(?=\n```)", re.DOTALL)
ROW = re.compile(r"…?≈?\s*\d+  (?P<rent>\S.*?\S)  ")
AMOUNT = re.compile(r"(?P<number>\d[\d.,]*)(?P<unit> ?(?:days|min|[MkBdh]\b)|)")
UNITS = {"k": 1e3, "M": 1e6, "B": 1e9, "min": 1 / 60, "h": 1.0, "d": 24.0, "days": 24.0}
NEAR = 0.25
"""Predictions move by a few percent with each measurement that is added; dollars are rounded to
tens."""
RELATIONS = re.compile(r"% above|times as fast|plans fit|others|Next: |than the cheapest")
"""What hangs on two plans or on how many there are, or is an id: said in the same words only."""


@functools.cache
def answer(asked: str) -> list[str]:
    """Return the lines that the command prints on a terminal of 100 columns."""
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(stream):
        patch.setenv("COLUMNS", "100")
        patch.chdir(ROOT)
        assert run(asked.split()) == 0
    return stream.getvalue().splitlines()


def printed(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert f"gpuplan {QUESTIONS[page]}" in text
    block = BLOCK.search(text)
    assert block is not None
    return block[0].splitlines()


def rows_of(lines: list[str]) -> dict[str, str]:
    """Return the rows of a table by what is rented."""
    return {row["rent"]: line for line in lines if (row := ROW.match(line)) is not None}


def skeleton(line: str) -> str:
    """Return a line with its numbers left out: those of machines are part of their names."""
    return " ".join(re.sub(r"[\d.,]+", "#", line).split())


def amounts(line: str) -> list[float]:
    """Return the numbers of a line, in the same unit."""
    return [
        float(found["number"].rstrip(".,").replace(",", "")) * UNITS.get(found["unit"].strip(), 1.0)
        for found in AMOUNT.finditer(line)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_the_words_of_the_answer(page: str) -> None:
    """Question, recommendation, headings and legend; rows may have changed places."""
    words = set(map(skeleton, answer(QUESTIONS[page])))
    for line in printed(page):
        if line.strip() not in ("", "…") and ROW.match(line) is None:
            assert skeleton(line) in words, line


@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_the_numbers_of_the_answer(page: str) -> None:
    lines = answer(QUESTIONS[page])
    own, fresh = rows_of(printed(page)), rows_of(lines)
    known = own.keys() & fresh.keys()
    assert len(known) >= 0.7 * len(own), sorted(own.keys() - fresh.keys())
    pairs = [(own[rent].split(rent)[1], fresh[rent].split(rent)[1]) for rent in sorted(known)]
    others = {skeleton(line): line for line in lines if ROW.match(line) is None}
    pairs += [
        (line, others.get(skeleton(line), ""))
        for line in printed(page)
        if ROW.match(line) is None and not RELATIONS.search(line)
    ]
    for told, true in pairs:
        assert amounts(told) == pytest.approx(amounts(true), rel=NEAR, abs=0.6), (told, true)


def test_numbers_are_read_in_one_unit() -> None:
    assert amounts("15–22 h  $50–70  161k") == [15.0, 22.0, 50.0, 70.0, 161e3]
    assert amounts("62–85 min   1.05M  3.4–5.0 d") == pytest.approx([62, 85 / 60, 1.05e6, 3.4, 120])
