"""What an account's quotas allow: shared by types, of all regions too, and never exceeded."""

from dataclasses import replace
from datetime import date

import pytest
from capacity_jobs import job, projects
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.planner.budget.project.project import Project
from gpuplan.planner.capacity.build import capacity_over_time
from gpuplan.planner.capacity.jobs import Job
from gpuplan.planner.capacity.order import ordered
from gpuplan.planner.capacity.place import place
from gpuplan.planner.capacity.quotas import QuotaLimit, ask_by, never_start, wanted_of, with_quotas

PROJECT = Project.model_validate(
    {
        "name": "a year",
        "start": "2027-01",
        "months": 12,
        "experiments": {"job": {"hours": 10, "instance": "x", "provider": "aws"}},
    }
)


def quota(limit: float, used: float | None = 0.0, **changes: object) -> QuotaLimit:
    given: dict[str, object] = {
        "provider": "aws",
        "region": "us-east-1",
        "name": "P instances",
        "code": "L-1",
        "unit": "vCPU",
        "limit": limit,
        "used": used,
        "per_node": {"A": 96.0, "B": 192.0},
    }
    return QuotaLimit(**{**given, **changes})  # pyright: ignore[reportArgumentType]


def rented(jobs: list[Job]) -> list[Job]:
    return [replace(one, sku=one.accelerator) for one in jobs]


@settings(max_examples=60, deadline=None)
@given(projects(), st.integers(0, 1200), st.integers(1, 8))
def test_no_moment_takes_more_of_a_quota_than_is_left(
    drawn: list[Job], limit: int, everywhere: int
) -> None:
    quotas = [
        quota(limit, 48.0),
        quota(everywhere, region="global", code="L-2", per_node={"A": 1.0, "B": 1.0}),
    ]
    jobs = with_quotas(rented(drawn), quotas)
    closed = never_start(rented(drawn), quotas)
    free = {one.key: one.free for one in quotas}
    for placed in (place(jobs, free), ordered(jobs, free, slot_h=1.0).placed):
        going = [number for number in range(len(jobs)) if number not in closed]
        for number in going:
            at_h = placed[number].begin_h
            now = [n for n in going if placed[n].begin_h <= at_h < placed[n].end_h]
            for one in quotas:
                taken = sum(one.per_node[jobs[n].sku] * placed[n].at_once for n in now)
                assert taken <= one.free


def test_types_that_one_quota_counts_wait_for_each_other() -> None:
    jobs = [job(10, 8, sku="A", nodes=2), job(10, 8, accelerator="B", sku="B", nodes=1)]
    found = capacity_over_time(PROJECT, jobs, {}, quotas=[quota(192)])
    assert [one.slips_days for one in found.jobs] == [0, pytest.approx(10 / 24)]
    (need,) = found.quotas
    assert (need.free, need.wanted, need.short_from) == (192, 384, date(2027, 1, 1))
    assert need.accelerators == ("A", "B") and need.ask_by is None
    apart = [quota(192), quota(192, code="L-2", per_node={"B": 192.0})]
    apart[0] = replace(apart[0], per_node={"A": 96.0})
    assert capacity_over_time(PROJECT, jobs, {}, quotas=apart).end == found.wanted_end


def test_what_runs_in_the_account_now_is_not_there_for_the_project() -> None:
    assert quota(192, 96.0).free == 96 and quota(192, None).free == 192
    assert quota(96, 192.0).free == 0


def test_runs_that_are_too_large_never_start_nor_do_those_after_them() -> None:
    jobs = [
        job(10, 8, name="small", sku="A"),
        job(10, 64, name="main", sku="A", nodes=8),
        job(10, 8, name="last", sku="A", after=(1,)),
        job(10, 8, name="elsewhere", sku="C"),
    ]
    found = capacity_over_time(PROJECT, jobs, {}, quotas=[quota(96)])
    why = {one.name: one.cannot_start for one in found.jobs}
    assert why["small"] is None and why["elsewhere"] is None
    assert why["main"] == "one run takes 768 vCPU of P instances, and 96 are left"
    assert why["last"] == "it comes after main, which cannot start"
    assert "the project does not end: 2 of 4 sets of runs cannot start at all" in found.headline
    assert "With 768 more vCPU of P instances in aws us-east-1 by 2027-01-01" in found.headline


def test_what_is_enough_is_said() -> None:
    found = capacity_over_time(PROJECT, [job(10, 8, sku="A")], {}, quotas=[quota(96)])
    assert found.headline.startswith("The quota of your account is enough: nothing waits")
    assert found.quotas[0].short_from is None
    partly = capacity_over_time(
        PROJECT, [job(10, 8, sku="A")], {}, quotas=[quota(96)], quotas_unknown={"x": "no login"}
    )
    assert partly.headline.startswith("The quota of your account, as far as it is known, is enough")


def test_more_is_wanted_from_the_moment_at_which_it_is_too_little() -> None:
    jobs = [job(10, 8, sku="A"), job(10, 8, sku="A", earliest_h=10.0, nodes=2)]
    wanted = wanted_of(quota(96), jobs, place(jobs, {}))
    assert (wanted.units, wanted.short_from_h) == (192, 10)


@pytest.mark.parametrize(
    ("needed", "days", "today", "on"),
    [
        (date(2027, 1, 4), 2, None, date(2026, 12, 31)),
        (date(2027, 1, 4), None, None, None),
        (date(2027, 1, 4), 2, date(2027, 1, 2), date(2027, 1, 2)),
    ],
    ids=["over a weekend", "nobody says how long", "in the past"],
)
def test_the_day_to_ask_is_working_days_earlier(
    needed: date, days: int | None, today: date | None, on: date | None
) -> None:
    assert ask_by(needed, days, today) == on
