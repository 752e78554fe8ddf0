"""Many machines at once: whether they can be had is hardly known, and that is said."""

from dataclasses import replace

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.question import Machine, Question
from gpuplan.planner.search.machines.many_at_once import many_at_once
from gpuplan.planner.search.machines.offers import PricedInstance, survey

CATALOGUE = load_catalogue()


def machine(instance: str) -> PricedInstance:
    return survey(CATALOGUE, Machine(instances=(instance,)), Question().money).choices[0]


def test_few_machines_need_no_word() -> None:
    assert many_at_once(machine("p5.48xlarge"), 7) is None
    assert many_at_once(machine("g5.xlarge"), 63) is None


def test_many_are_not_known_to_be_had() -> None:
    note = many_at_once(machine("p5.48xlarge"), 64) or ""
    assert note.startswith("whether 64 × p5.48xlarge can be had at once is not known: aws")  # noqa: RUF001
    assert "one capacity block of aws has 64 at most" in note
    assert "`gpuplan capacity`" in note


def test_other_sellers_are_asked() -> None:
    choices = survey(CATALOGUE, Machine(providers=("nebius",)), Question().money).choices
    eight = next(one for one in choices if one.instance.accelerators == 8)
    note = many_at_once(eight, 8) or ""
    assert note.endswith("nebius publishes no stock; ask the seller")


@pytest.mark.parametrize("purchase", ["reserved", "block", "owned", "committed"])
def test_what_is_held_or_owned_is_there(purchase: str) -> None:
    held = replace(machine("p5.48xlarge"), purchase=purchase)  # pyright: ignore[reportArgumentType]
    assert many_at_once(held, 64) is None
