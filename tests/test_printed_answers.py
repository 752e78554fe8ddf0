"""The answers that README.md and two pages of docs/ print are those of the command."""

import contextlib
import functools
import io
import re
import shlex
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
EXCERPT = re.compile(
    r"```sh\n(?P<command>gpuplan (?:fits|estimate|launch) [^\n]*)\n```\n"
    r"```text\n(?P<lines>.*?)\n```",
    re.DOTALL,
)
"""A command with what it prints right below."""
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
    """Return a line with its numbers left out: those of machines are part of their names.

    So are ids of plans, whose letters change with any number of the plan.
    """
    without_ids = re.sub(r"\b(?=\w*\d)[0-9a-f]{10}\b", "ID", line)
    return " ".join(re.sub(r"[\d.,]+", "#", without_ids).split())


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


def excerpts(page: str) -> list[tuple[str, list[str]]]:
    """Return each command of a page with the lines below it, but for the whole answers above."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [(one["command"], one["lines"].splitlines()) for one in EXCERPT.finditer(text)]
    return [(command, lines) for command, lines in found if not lines[0].startswith("gpt2 · ")]


def said(command: str) -> list[str]:
    """Return the lines that a command prints on both streams of a terminal of 100 columns."""
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        patch.chdir(ROOT)
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            assert run(shlex.split(command)[1:]) == 0
    return stream.getvalue().splitlines()


def test_the_tutorial_prints_what_its_other_commands_print() -> None:
    """Fits, why, compiled and the launch, one after the other: a launch takes the last estimate."""
    told = excerpts("docs/tutorial.md")
    assert [lines[0].split()[0] for _, lines in told] == ["Yes,", "Step", "#", "gpt2,"]
    for command, lines in told:
        true = [one for line in said(command) if (one := without_bars(line))]
        for line in map(without_bars, lines):
            if line in ("", "…"):
                continue
            same = [amounts(one) for one in true if skeleton(one) == skeleton(line)]
            assert same, f"{command}: {line}"
            if not line.startswith("Plan "):  # Its id is of its own.
                near = pytest.approx(amounts(line), rel=NEAR, abs=0.6)
                assert any(one == near for one in same), (line, same)


def without_bars(line: str) -> str:
    """Return a line without its bar, whose length is a share that stands beside it."""
    return re.sub(r"[▏▎▍▌▋▊▉█░]+", "", line).strip()


def test_what_the_pages_say_of_an_odd_vocabulary_is_so() -> None:
    """README and the tutorial: what it costs, and what is recommended with an even one."""
    shares = {}
    for page, asked in (("README.md", ASKED), ("docs/tutorial.md", IN_LIMITS)):
        said_so = " ".join(" ".join(said(f"gpuplan {asked}")).split())
        found = re.search(r"50,257 wide, an odd number, .* up to (\d+) % of a step", said_so)
        assert found is not None, page
        shares[page] = int(found[1])
        lines = answer(f"{asked} --param vocab=50304")
        recommended = next(line for line in lines if line.startswith("Recommended"))
        assert "8 × A100-40GB-SXM" in recommended, page
    assert shares == pytest.approx({"README.md": 25, "docs/tutorial.md": 30}, abs=6)


def test_numbers_are_read_in_one_unit() -> None:
    assert amounts("15–22 h  $50–70  161k") == [15.0, 22.0, 50.0, 70.0, 161e3]
    assert amounts("62–85 min   1.05M  3.4–5.0 d") == pytest.approx([62, 85 / 60, 1.05e6, 3.4, 120])
