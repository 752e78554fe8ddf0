"""Lines that are longer than a screen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from gpuplan.cli.render.text.folded import folded


def parts(text: str, width: int = 60) -> list[str]:
    return [line.plain for line in folded([Text(text)], width)]


def test_a_line_that_fits_stays() -> None:
    line = Text("  work         817 GFLOP", "bold")
    assert list(folded([line], 60)) == [line]


def test_what_follows_a_label_stands_under_its_value() -> None:
    facts = "817 GFLOP per sample of 1,024 tokens · 798 MFLOP per token, both ways"
    assert parts(f"  work         {facts}") == [
        "  work         817 GFLOP per sample of 1,024 tokens ·",
        "               798 MFLOP per token, both ways",
    ]


def test_running_text_goes_on_further_in() -> None:
    first, second = parts("  not in these sums: checkpoints kept ?, download of a checkpoint ?")
    assert first == "  not in these sums: checkpoints kept ?, download of a"
    assert second == "    checkpoint ?"


def test_styles_stay_with_their_letters() -> None:
    line = Text.assemble("word " * 12, ("red words that are bold", "bold"))
    lines = list(folded([line], 60))
    assert len(lines) == 2 and [span.style for span in lines[1].spans] == ["bold"]


def test_a_word_longer_than_a_line_stays_whole() -> None:
    assert parts("a" * 90) == ["a" * 90]


@given(st.lists(st.text("abc·≈中", min_size=1, max_size=20), min_size=1), st.integers(60, 110))
def test_nothing_is_lost_and_all_fits(words: list[str], width: int) -> None:
    text = " ".join(words)
    lines = parts(text, width)
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    assert all(cell_len(line) <= width for line in lines)


@pytest.mark.parametrize("width", [20, 60])
def test_a_very_narrow_screen_is_taken_for_60_columns(width: int) -> None:
    assert parts("word " * 30, width) == parts("word " * 30, 60)
