"""Which machines count as one, and which of their sellers have a row."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.question import Machine, Money
from gpuplan.planner.search.machines.equal_machines import Sellers, by_machine
from gpuplan.planner.search.machines.offers import PricedInstance, survey


@pytest.fixture(scope="module")
def p4d() -> PricedInstance:
    machine = Machine(providers=("aws",), instances=("p4d.24xlarge",))
    (found,) = survey(load_catalogue(), machine, Money()).choices
    return found


def from_others(one: PricedInstance) -> list[PricedInstance]:
    """Return the same machine of four sellers, each dearer than the one before."""
    return [
        replace(
            one,
            offer=one.offer.model_copy(update={"provider": name}),
            usd_per_hour=None if name == "unknown" else Decimal(place),
        )
        for place, name in enumerate(("small", "other", "gcp", "unknown"), start=1)
    ]


def test_price_and_seller_do_not_keep_machines_apart_but_hardware_does(p4d: PricedInstance) -> None:
    instance = p4d.instance
    more_cores = replace(p4d, instance=instance.model_copy(update={"vcpus": 192}))
    more_memory = replace(p4d, instance=instance.model_copy(update={"memory_bytes": 2**42}))
    machines = [*from_others(p4d), more_cores, more_memory]
    assert [len(one) for one in by_machine(machines, by_memory=False, by_cpus=False)] == [6]
    assert [len(one) for one in by_machine(machines, by_memory=False, by_cpus=True)] == [5, 1]
    assert [len(one) for one in by_machine(machines, by_memory=True, by_cpus=False)] == [4, 1, 1]


def test_the_cheapest_and_the_cheapest_of_the_large_clouds_are_shown(p4d: PricedInstance) -> None:
    machines = from_others(p4d)[::-1]
    one_row = Sellers(by="accelerator", all_variants=False).shown(machines)
    assert [choice.offer.provider for choice in one_row] == ["small", "gcp"]
    by_seller = Sellers(by="provider", all_variants=False).shown(machines)
    assert [one.offer.provider for one in by_seller] == ["small", "other", "gcp", "unknown"]
    assert Sellers(by="accelerator", all_variants=True).shown(machines) == machines
