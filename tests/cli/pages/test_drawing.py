"""What all charts have in common."""

from __future__ import annotations

import re

import pytest

from gpuplan.cli.pages.drawing import (
    Bar,
    bars,
    linear,
    part_bars,
    round_log_values,
    round_values,
    shortened,
    signed_money,
)


def strips(text: str) -> list[tuple[float, float]]:
    found = re.findall(r'<rect class="[\w ]*" x="(.*?)%" width="(.*?)%"', text)
    return [(float(x), float(width)) for x, width in found]


def test_bars_are_as_long_as_their_share() -> None:
    rows = [Bar(name="<a>", size=2, text="2"), Bar(name="b", size=1, text="1")]
    text = str(bars(rows, label=""))
    (_, first), (_, second) = strips(text)
    assert first == 2 * second and "&lt;a&gt;" in text
    assert bars([], label="") is None


def test_parts_that_add_up_stand_one_after_another() -> None:
    total = Bar(name="all", size=10, text="10")
    text = str(bars(part_bars({"a": 6, "b": 4}, total, scale_text=str), label=""))
    assert strips(text) == [(0, 100), (0, 60), (60, 40)]


def test_parts_that_overlap_begin_together() -> None:
    total = Bar(name="all", size=10, text="10")
    text = str(bars(part_bars({"a": 8, "b": 4}, total, scale_text=str), label=""))
    assert strips(text) == [(0, 100), (0, 80), (0, 40)]


@pytest.mark.parametrize("low", [-1234.5, -3.0, 0.0, 0.001, 7.0])
@pytest.mark.parametrize("width", [0.0004, 0.7, 3.0, 110.0, 1e6])
def test_round_values_lie_between(low: float, width: float) -> None:
    found = round_values(low, low + width)
    assert 3 <= len(found) <= 8
    assert all(low - width * 1e-6 <= one <= low + width * (1 + 1e-6) for one in found)


@pytest.mark.parametrize("low", [0.003, 0.9, 17.0, 4321.0])
@pytest.mark.parametrize("factor", [1.08, 1.9, 12.0, 1e3, 1e7])
def test_round_values_of_a_logarithmic_axis_lie_between(low: float, factor: float) -> None:
    found = round_log_values(low, low * factor)
    assert 2 <= len(found) <= 7
    assert all(low <= one <= low * factor * (1 + 1e-9) for one in found)


def test_an_axis_without_length_is_no_division_by_zero() -> None:
    assert linear(3, 3)(3) == 0.0
    assert round_values(3, 3) == [3]


def test_amounts_have_their_sign() -> None:
    assert [signed_money(one) for one in (-20.0, 0, 1500)] == ["−$20", "$0", "$1,500"]  # noqa: RUF001


def test_long_names_are_shortened() -> None:
    assert shortened("x" * 60) == "x" * 60
    assert shortened("x" * 61) == "x" * 59 + "…"
