"""The chart of cost against time: what it holds, and where."""

import re
from dataclasses import replace

from gpuplan.cli.pages.front_chart import Point, cost_time_front, undominated


def point(hours: float, usd: float, name: str = "") -> Point:
    return Point(
        name=name,
        link="/plan/0",
        hours=(hours * 0.9, hours, hours * 1.2),
        usd=(usd * 0.9, usd, usd * 1.2),
        is_recommended=False,
    )


def test_the_front_is_of_plans_that_none_beats() -> None:
    points = [point(10, 100), point(5, 200), point(6, 300), point(20, 100), point(4, 400)]
    assert [one.hours[1] for one in undominated(points)] == [10, 5, 4]


def test_what_needs_a_port_is_drawn_and_beats_nobody() -> None:
    """A TPU that the file does not run on was the line's lower end."""
    ported = replace(point(1, 1), runs_as_it_is=False)
    assert [one.hours[1] for one in undominated([point(10, 100), ported])] == [10]
    assert str(cost_time_front([ported])).count("<circle") == 1


def test_cheaper_is_lower_and_faster_is_left() -> None:
    text = str(cost_time_front([point(10, 100), point(5, 200)]))
    (x1, y1), (x2, y2) = (map(float, one) for one in re.findall(r'cx="(.*?)%" cy="(.*?)%"', text))
    assert x1 > x2 and y1 > y2


def test_one_point_and_none_can_be_drawn() -> None:
    assert str(cost_time_front([point(1, 1)])).count("<circle") == 1
    assert cost_time_front([]) is None
    assert cost_time_front([point(1, 0)]) is None


def test_the_axes_have_round_figures() -> None:
    text = str(cost_time_front([point(30, 1100), point(300, 5000)]))
    labels = re.findall(r"<text[^>]*>(.*?)</text>", text)
    assert {"3 days", "10 days", "$1,000", "$5,000"} <= set(labels)
