"""A plan of $13.17 is within a budget of $13.17 and not of $13.16; a deadline likewise."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.answer import whole_plans
from gpuplan.planner.search.search import SearchOutcome, search
from gpuplan.profiles.profile import Profile

CATALOGUE = embedded_catalogue()
PLACES = (
    ("aws", "p5.48xlarge", "on-demand"),
    ("verda", "8x H100 SXM", "on-demand"),
    ("vultr", "vultr-a40-on-demand", "on-demand"),
    ("gcp", "a2-highgpu-8g", "committed-1y"),
    ("gcp", "g2-standard-48", "spot"),
)


def asked(profile: Profile, place: tuple[str, str, str], steps: int, **limits) -> SearchOutcome:
    provider, kind, purchase = place
    question = Question(
        work=Work(steps=steps, global_batch=64),
        machine=Machine(providers=(provider,), instances=(kind,), nodes=(1,)),
        choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
        money=Money(purchase=purchase, **limits),  # type: ignore[arg-type]
    )
    return search(question, profile, CATALOGUE)


@pytest.mark.parametrize("steps", [1_000, 30_000, 77_777])
@pytest.mark.parametrize("place", PLACES, ids=[kind for _, kind, _ in PLACES])
def test_the_cost_that_is_shown_keeps_its_budget(
    toy: Profile, place: tuple[str, str, str], steps: int
) -> None:
    job = asked(toy, place, steps).plans[0].whole_job
    assert job is not None and job.total_usd is not None
    for budget_usd in (job.total_usd - Decimal("0.01"), job.total_usd):
        plans = asked(toy, place, steps, budget_usd=budget_usd).plans
        assert bool(plans) == (budget_usd == job.total_usd)


def test_what_takes_the_place_of_a_variant_that_is_too_large_keeps_the_limits(
    toy: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variant that a search liked has no room when replayed, and the next takes longer."""
    fits = whole_plans._that_fits

    def slower(candidate, cache, next_best):
        found, memory = fits(candidate, cache, next_best)
        return replace(found, step_s=1.2 * found.step_s), memory

    free = asked(toy, PLACES[0], 3_000_000).plans[0].whole_job
    assert free is not None and free.total_usd is not None
    monkeypatch.setattr(whole_plans, "_that_fits", slower)
    for limits in (
        {"budget_usd": free.total_usd * Decimal("1.05")},
        {"deadline_s": free.hours * 3600 * 1.05},
    ):
        assert not asked(toy, PLACES[0], 3_000_000, **limits).plans
    assert asked(toy, PLACES[0], 3_000_000, budget_usd=2 * free.total_usd).plans
