"""Machines that are billed for an hour at least, whatever a job takes."""

from decimal import Decimal

import pytest

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.search import SearchOutcome, search
from gpuplan.profiles.profile import Profile

CATALOGUE = embedded_catalogue()
TYPE, HOUR_USD = "BM.GPU4.8", Decimal("24.40")


def asked(profile: Profile, steps: int | None, **money) -> SearchOutcome:
    question = Question(
        work=Work(steps=steps, global_batch=64),
        machine=Machine(providers=("oci",), instances=(TYPE,), nodes=(1,)),
        choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
        money=Money(**money),
    )
    return search(question, profile, CATALOGUE)


def test_a_job_of_minutes_pays_the_hour(toy: Profile) -> None:
    job = asked(toy, 100).plans[0].whole_job
    assert job is not None and job.hours < 0.4
    assert (job.usd, job.usd_low, job.usd_high) == (HOUR_USD,) * 3
    (line,) = (one for one in job.cost_lines if one.name == "billing increment")
    assert line.quantity == pytest.approx(1 - job.hours, abs=1e-3)


def test_the_idle_tail_lies_in_the_hour_that_is_paid(toy: Profile) -> None:
    """A minute more of the machine was counted beside an hour of which 50 were not used."""
    job = asked(toy, 100).plans[0].whole_job
    assert job is not None and "idle tail" not in [one.name for one in job.data_lines]
    long = asked(toy, 10**6).plans[0].whole_job
    assert long is not None and long.hours > 1
    (tail,) = (one for one in long.data_lines if one.name == "idle tail")
    assert tail.usd == (HOUR_USD / 60).quantize(Decimal("0.01"))


def test_a_budget_of_an_hour_pays_for_a_job_in_it(toy: Profile) -> None:
    """It was over such a budget, by its idle tail; disks without a price count as dear ones."""
    (plan, *_) = asked(toy, 100, budget_usd=HOUR_USD + Decimal("0.20")).plans
    assert plan.whole_job is not None and plan.whole_job.total_usd == HOUR_USD


@pytest.mark.parametrize("usd", ["24.00", "25.00", "26.00", "31.00", "60.00"])
def test_a_budget_near_an_hour_pays_for_the_runs_that_are_shorter(toy: Profile, usd: str) -> None:
    found = asked(toy, None, budget_usd=Decimal(usd))
    if Decimal(usd) < HOUR_USD:
        assert not found.plans
        return
    plan = found.plans[0]
    job = plan.whole_job
    assert job is not None and job.total_usd is not None and plan.run is not None
    assert job.total_usd <= Decimal(usd)
    again = asked(toy, plan.run.steps, budget_usd=Decimal(usd))
    assert any(one.whole_job and one.whole_job.total_usd == job.total_usd for one in again.plans)
