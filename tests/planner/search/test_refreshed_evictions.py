"""An eviction rate that the user refreshed is what spot plans of its place count with."""

from dataclasses import replace

import pytest
from fake_cloud import eviction

from gpuplan.catalog.embedded import Catalogue, embedded_catalogue
from gpuplan.planner.plan.parts import Stops
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

PACKAGE = embedded_catalogue()
SIZE = "Standard_ND96isr_H100_v5"


def stops_with(toy: Profile, catalogue: Catalogue, region: str) -> Stops:
    question = Question(
        work=Work(steps=10_000, global_batch=64),
        machine=Machine(providers=("azure",), regions=(region,), instances=(SIZE,), nodes=(1,)),
        choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
        money=Money(purchase="spot", deadline_s=1e12),
        by="instance",
    )
    stops = search(question, toy, catalogue).plans[0].stops
    assert stops is not None
    return stops


def test_the_expected_stops_are_those_of_the_place(toy: Profile) -> None:
    regions = sorted(
        {o.region for o in PACKAGE.offers if o.instance_type == SIZE and o.spot_is_market}
    )
    here, elsewhere = regions[:2]
    often = eviction(0.2, 1.0, region=here)
    refreshed = replace(PACKAGE, evictions={("azure", here, SIZE): often})
    before, after = (stops_with(toy, one, here) for one in (PACKAGE, refreshed))
    assert after.per_hour > 10 * before.per_hour
    assert "20% to more an hour: a test, 2026-11-23" in after.sources[0]
    assert "assumed" in before.sources[0]
    unknown = stops_with(toy, refreshed, elsewhere)
    assert unknown.per_hour == pytest.approx(before.per_hour)
