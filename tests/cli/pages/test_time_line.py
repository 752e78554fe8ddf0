"""Time lines and their axes: round times, and bars where they belong."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from gpuplan.cli.pages.time_axis import TimeAxis
from gpuplan.cli.pages.time_line import Span, SpanRow, time_line

NOW = datetime(2026, 11, 23, 12, 34, 56, tzinfo=UTC)


@pytest.mark.parametrize(
    "hours", [0.01, 0.2, 1, 3, 7, 13, 30, 70, 200, 400, 900, 3000, 9000, 40000, 200000]
)
def test_an_axis_has_a_few_labels_in_order(hours: float) -> None:
    ticks = TimeAxis(NOW, NOW + timedelta(hours=hours)).ticks()
    shares = [share for share, _ in ticks]
    assert len(ticks) <= 6
    assert shares == sorted(shares) and all(0 <= share <= 1 for share in shares)
    assert len({text for _, text in ticks}) == len(ticks)
    assert ticks or hours < 0.1


def test_labels_are_round_times() -> None:
    ticks = TimeAxis(NOW, NOW + timedelta(hours=4)).ticks()
    assert all(text.endswith(":00") for _, text in ticks)
    days = TimeAxis(NOW, NOW + timedelta(days=120)).ticks()
    assert [text for _, text in days] == ["Dec 2026", "Jan 2027", "Feb 2027", "Mar 2027"]


def test_an_axis_of_no_length_has_its_begin() -> None:
    axis = TimeAxis(NOW, NOW)
    assert axis.share(NOW) == 0.0
    assert axis.ticks() == [] or len(axis.ticks()) == 1


def span(begin_h: float, hours: float, kind: str = "good") -> Span:
    begin = NOW + timedelta(hours=begin_h)
    return Span(begin=begin, end=begin + timedelta(hours=hours), kind=kind, title="<b>")


def test_bars_are_as_long_as_they_took() -> None:
    rows = [
        SpanRow(name="<i>", link=None, spans=(span(0, 2),), text="a"),
        SpanRow(name="b", link="/b", spans=(span(2, 1), span(4, 1, "bad")), text="b"),
    ]
    text = str(time_line(rows, now=None, label="l"))
    found = re.findall(r'<rect class="span (\w+)" x="(.*?)%" width="(.*?)%"', text)
    (_, x1, w1), (_, x2, w2), (kind, x3, _) = found
    assert float(w1) == pytest.approx(2 * float(w2), abs=0.02)
    assert float(x2) == pytest.approx(float(x1) + float(w1), abs=0.02)
    assert kind == "bad" and float(x3) > float(x2)
    assert "&lt;i&gt;" in text and "&lt;b&gt;" in text and 'href="/b"' in text


def test_now_is_a_line_through_all_rows() -> None:
    rows = [SpanRow(name=name, link=None, spans=(span(-5, 4),), text="") for name in "ab"]
    assert str(time_line(rows, now=NOW, label="l")).count('class="today"') == 2
    assert "today" not in str(time_line(rows, now=None, label="l"))


def test_what_took_no_time_can_be_seen() -> None:
    rows = [SpanRow(name="a", link=None, spans=(span(0, 0), span(0, 5000)), text="")]
    text = str(time_line(rows, now=None, label="l"))
    assert min(float(one) for one in re.findall(r'width="(.*?)%"', text)) >= 0.4


def test_nothing_is_no_line() -> None:
    assert time_line([], now=NOW, label="l") is None
    assert time_line([SpanRow(name="a", link=None, spans=(), text="")], now=NOW, label="") is None
