"""When the runs of a project take place."""

import pytest

from gpuplan.planner.budget.schedule import duration_h, month_at
from tests.support.projects import make_books, make_planned, make_project, make_run_cost

JANUARY_H = 31 * 24


def spans(experiments: dict, **costs) -> dict[str, list[tuple[float, float]]]:
    full = {name: {"model": "a.py", "tokens": "1B", **one} for name, one in experiments.items()}
    found: dict[str, list[tuple[float, float]]] = {}
    for span in make_books(make_project(experiments=full), **costs).spans():
        found.setdefault(span.of.name, []).append((span.begin_h, span.end_h))
    return found


def test_what_comes_after_begins_when_all_before_have_ended() -> None:
    found = spans(
        {"c": {"after": ["a", "b"]}, "a": {}, "b": {"start": "2027-02"}},
        a=make_run_cost(hours=50),
    )
    assert found["a"] == [(0, 50)]
    assert found["b"] == [(JANUARY_H, JANUARY_H + 10)]
    assert found["c"] == [(JANUARY_H + 10, JANUARY_H + 20)]


def test_a_start_month_later_than_what_it_waits_for_counts() -> None:
    found = spans({"a": {}, "b": {"after": "a", "start": "2027-02"}})
    assert found["b"][0][0] == JANUARY_H


def test_runs_go_on_in_waves() -> None:
    project = make_project(
        experiments={"a": {"model": "a", "tokens": 1, "runs": {"seeds": 5}, "parallel": 2}}
    )
    assert duration_h(make_planned(project)) == 30


def test_failed_and_early_ended_runs_take_the_time_they_do() -> None:
    project = make_project(
        experiments={
            "a": {
                "model": "a",
                "tokens": 1,
                "retry": {"failed_share": "50%", "mean_progress_at_failure": "50%"},
                "stop_early": {"share": "100%", "at_progress": "40%"},
            }
        }
    )
    # Of 10 h the first is the start, which both have whole.
    assert duration_h(make_planned(project)) == pytest.approx((1 + 9 * 0.4) + (1 + 9 * 0.5))


def test_repetitions_keep_their_day_of_the_month_and_never_overlap() -> None:
    found = spans({"a": {"every": "month", "times": 3}})
    assert [begin for begin, _ in found["a"]] == [0, JANUARY_H, JANUARY_H + 28 * 24]
    long = spans({"a": {"every": "week", "times": 2}}, a=make_run_cost(hours=1000))
    assert long["a"] == [(0, 1000), (1000, 2000)]


def test_the_month_of_an_hour() -> None:
    start = make_project().start
    assert str(month_at(start, 0)) == "2027-01"
    assert str(month_at(start, JANUARY_H - 0.001)) == "2027-01"
    assert str(month_at(start, JANUARY_H)) == "2027-02"
