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
