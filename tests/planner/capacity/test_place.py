"""Jobs are placed as early as machines and the jobs before them allow, and never on too few."""

import pytest
from capacity_jobs import job, projects
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.capacity.jobs import Job
from gpuplan.planner.capacity.place import Placed, place, used_at


@given(projects(), st.integers(4, 12))
def test_no_moment_has_more_than_there_are(jobs: list[Job], have: int) -> None:
    placed = place(jobs, {"A": have})
    for kind, most in (("A", have), ("B", 10**6)):
        own = [one for job, one in zip(jobs, placed, strict=True) if job.accelerator == kind]
        assert all(used_at(own, one.begin_h) <= most for one in own)
    for number, one in enumerate(placed):
        ready_h = max([jobs[number].earliest_h, *(placed[i].end_h for i in jobs[number].after)])
        assert one.begin_h >= ready_h
        assert one.end_h - one.begin_h == pytest.approx(jobs[number].hours(one.at_once))


@given(projects())
def test_where_nothing_is_scarce_nothing_waits(jobs: list[Job]) -> None:
    assert place(jobs, {"A": 10**6, "B": 10**6}) == place(jobs, {})
    for number, one in enumerate(place(jobs, {})):
        ready = [jobs[number].earliest_h, *(place(jobs, {})[i].end_h for i in jobs[number].after)]
        assert one.begin_h == max(ready)


def test_a_job_goes_into_a_gap_that_is_long_enough() -> None:
    jobs = [job(10, 8), job(10, 8, earliest_h=15.0), job(5, 8), job(6, 8)]
    assert [one.begin_h for one in place(jobs, {"A": 8})] == [0, 15, 10, 25]


def test_some_runs_at_once_beside_others_may_end_first() -> None:
    ladder, sweep = job(100, 32), job(10, 8, runs=12, parallel=6)
    assert sweep.at_once({}) == (6,)
    assert sweep.at_once({"A": 48}) == (6, 4, 3, 2, 1)
    assert place([ladder, sweep], {"A": 64})[1] == Placed(
        begin_h=0, end_h=30, at_once=4, accelerators=32
    )


def test_of_counts_with_as_many_waves_the_least_is_taken() -> None:
    assert job(1, 1, runs=9, parallel=8).at_once({"A": 8}) == (5, 3, 2, 1)
