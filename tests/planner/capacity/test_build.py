"""What a project is told: when it ends, what waits, how much more it would take."""

from collections.abc import Sequence
from datetime import date

import pytest
from capacity_jobs import job

from gpuplan.catalog.errors import UsageError
from gpuplan.planner.budget.project.project import Project
from gpuplan.planner.budget.report.capacity_rows import CapacityOverTime
from gpuplan.planner.capacity.build import capacity_over_time
from gpuplan.planner.capacity.jobs import Job

PROJECT = Project.model_validate(
    {
        "name": "a year",
        "start": "2027-01",
        "months": 12,
        "experiments": {"job": {"hours": 10, "instance": "x", "provider": "aws"}},
    }
)


def of(jobs: Sequence[Job], **have: int) -> CapacityOverTime:
    return capacity_over_time(PROJECT, jobs, have)


def test_without_a_limit_it_says_what_is_wanted_at_most() -> None:
    found = of([job(240, 8, name="first"), job(48, 16, name="second", earliest_h=24.0)])
    assert found.end == date(2027, 1, 11) and found.have == {} and found.shortages == ()
    assert found.headline.endswith("as many accelerators as it wants: at most 24 × A (2027-01).")  # noqa: RUF001
    (need,) = found.needs
    assert (need.peak, need.have, need.short_probability) == (24, None, 0)
    assert need.mean == pytest.approx((240 * 8 + 48 * 16) / 744)
    assert need.mean_low < need.mean < need.mean_high


def test_with_too_few_it_says_what_waits_and_how_many_more_it_takes() -> None:
    jobs = [job(240, 8, name="first", priority=9), job(240, 8, name="second", earliest_h=24.0)]
    found = of(jobs, A=8)
    assert (found.wanted_end, found.end) == (date(2027, 1, 12), date(2027, 1, 21))
    assert [(one.name, round(one.slips_days)) for one in found.jobs] == [
        ("first", 0),
        ("second", 9),
    ]
    (short,) = found.shortages
    assert (short.have, short.wanted, short.short_from) == (8, 16, date(2027, 1, 2))
    assert short.utilisation == 1
    assert "9 days later than it could" in found.headline
    assert "One set of runs ends later than wanted, second by 9 days." in found.headline
    assert found.headline.endswith("With 8 more A by 2027-01-02 nothing would.")
    assert of(jobs, A=16).headline.startswith("16 × A are enough: nothing waits")  # noqa: RUF001
    assert of(jobs, A=16).shortages == ()


def test_what_is_used_is_what_is_wanted_at_another_time() -> None:
    jobs = [job(500, 8, name=f"job {number}") for number in range(4)]
    found = of(jobs, A=8)
    hours = {month.month: month.month.hours for month in found.needs}
    assert sum(one.used * hours[one.month] for one in found.needs) == pytest.approx(4 * 500 * 8)
    assert sum(one.mean * hours[one.month] for one in found.needs) == pytest.approx(4 * 500 * 8)
    assert found.needs[0].short_probability == 1
    assert found.end_low < found.end < found.end_high


def test_hours_that_are_exact_have_no_range() -> None:
    found = of([job(100, 8, shortest=1.0, longest=1.0)], A=8)
    assert found.end_low == found.end == found.end_high
    assert "(" not in found.headline


def test_one_run_that_is_too_large_is_refused() -> None:
    with pytest.raises(UsageError, match="one run is planned on 64 .* there are 32") as refused:
        of([job(10, 64)], A=32)
    assert "at least 64 under `have`" in (refused.value.fix or "")


def test_more_runs_than_can_be_put_in_order_are_refused() -> None:
    jobs = [job(1, 8)] * 1001
    with pytest.raises(UsageError, match="1,001 sets of runs"):
        of(jobs, A=8)
    assert of(jobs).needs[0].peak == 8008


def test_what_would_go_on_for_decades_is_refused() -> None:
    jobs = [job(8760, 8, runs=100, parallel=100)]
    assert of(jobs).end == date(2028, 1, 1)
    with pytest.raises(UsageError, match="job would end 100 years after the start"):
        of(jobs, A=8)
