"""The jobs of a project wait for what its file says, and take the times of its schedule."""

from typing import Any

import pytest

from gpuplan.planner.budget.schedule import Span
from gpuplan.planner.capacity.jobs import Job, jobs_of
from gpuplan.planner.capacity.place import place
from tests.support.projects import make_books, make_project, make_run_cost

PROJECTS: dict[str, dict[str, dict[str, Any]]] = {
    "one after another": {"c": {"after": ["a", "b"]}, "a": {}, "b": {"start": "2027-02"}},
    "repeated": {"a": {"every": "month", "times": 3, "start": "2027-02"}, "b": {"after": "a"}},
    "longer than its turn": {"a": {"every": "week", "times": 3}},
    "in waves": {"a": {"runs": {"seeds": 5}, "parallel": 2}, "b": {"after": "a"}},
}


def jobs_and_spans(experiments: dict[str, Any]) -> tuple[list[Job], list[Span]]:
    full = {name: {"model": "a.py", "tokens": "1B", **one} for name, one in experiments.items()}
    costs = {"a": make_run_cost(hours=200, spread=2.0)}
    books = make_books(make_project(experiments=full), **costs)
    spans = books.spans()
    return jobs_of(spans, books.project), spans


@pytest.mark.parametrize("case", PROJECTS)
def test_with_machines_enough_they_are_the_schedule(case: str) -> None:
    jobs, spans = jobs_and_spans(PROJECTS[case])
    placed = [
        (job.experiment, one.begin_h, one.end_h)
        for job, one in zip(jobs, place(jobs, {}), strict=True)
    ]
    assert sorted(placed) == sorted((one.of.experiment, one.begin_h, one.end_h) for one in spans)
    assert all(other < number for number, job in enumerate(jobs) for other in job.after)


def test_repetitions_have_numbers_and_keep_their_month() -> None:
    jobs, _ = jobs_and_spans(PROJECTS["repeated"])
    assert [job.name for job in jobs] == ["a #1", "a #2", "a #3", "b"]
    assert [job.earliest_h / 24 for job in jobs] == [31, 31 + 28, 31 + 28 + 31, 0]
    assert [job.after for job in jobs] == [(), (0,), (1,), (2,)]


def test_a_job_has_the_interval_of_its_plan() -> None:
    jobs, _ = jobs_and_spans({"a": {}})
    assert (jobs[0].run_h, jobs[0].shortest, jobs[0].longest) == (200, 0.5, 2)
