"""`--any` plans on spot machines and on demand, and is no worse than either alone."""

from decimal import Decimal

import pytest

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.search import SearchOutcome, search
from gpuplan.profiles.profile import Profile

CATALOGUE = embedded_catalogue()
PLACE = ("gcp", "us-central1", "g2-standard-4")


def asked(profile: Profile, steps: int | None, purchase: str, **money) -> SearchOutcome:
    provider, region, kind = PLACE
    question = Question(
        work=Work(steps=steps, global_batch=64),
        machine=Machine(providers=(provider,), regions=(region,), instances=(kind,), nodes=(1,)),
        choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
        money=Money(purchase=purchase, **money),  # type: ignore[arg-type]
    )
    return search(question, profile, CATALOGUE)


def days_of_work(profile: Profile) -> int:
    job = asked(profile, 10**6, "on-demand").plans[0].whole_job
    assert job is not None
    return round(5 * 24 / job.hours * 10**6)


def test_a_deadline_that_spot_machines_miss_is_kept_on_demand(toy: Profile) -> None:
    steps = days_of_work(toy)
    on_demand, spot = (asked(toy, steps, one).plans[0].whole_job for one in ("on-demand", "spot"))
    assert on_demand is not None and spot is not None and on_demand.hours < spot.hours
    between_s = 1800 * (on_demand.hours + spot.hours)
    assert not asked(toy, steps, "spot", deadline_s=between_s).plans
    plan = asked(toy, steps, "any", deadline_s=between_s).plans[0]
    assert plan.offer.purchase == "on-demand"


def test_without_a_deadline_spot_machines_are_taken_that_cost_less(toy: Profile) -> None:
    steps = days_of_work(toy)
    assert asked(toy, steps, "any").plans[0].offer.purchase == "spot"


@pytest.mark.parametrize("hours", [2, 48])
def test_a_deadline_trains_as_much_as_it_does_on_demand(toy: Profile, hours: int) -> None:
    limits = {"deadline_s": hours * 3600.0, "budget_usd": Decimal(10**6)}
    runs = [asked(toy, None, one, **limits).plans[0].run for one in ("any", "on-demand", "spot")]
    any_way, on_demand, spot = (run.steps if run else 0 for run in runs)
    assert any_way == on_demand > spot
