"""Which machines count as one, and which of their sellers have a row."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Machine, Money
from gpuplan.planner.search.machines.equal_machines import Sellers, by_machine
from gpuplan.planner.search.machines.offers import PricedInstance, survey
from gpuplan.planner.step.exchange_times import links_used


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


def test_networks_of_one_rate_and_of_another_kind_keep_machines_apart(p4d: PricedInstance) -> None:
    assert (p4d.instance.inter_link.name or "").startswith("EFA")
    fabric = p4d.instance.inter_link.model_copy(update={"name": "InfiniBand"})
    other = replace(p4d, instance=p4d.instance.model_copy(update={"inter_link": fabric}))
    found = by_machine([p4d, other], by_memory=False, by_cpus=False)
    assert [len(one) for one in found] == [1, 1]


def test_who_bills_in_smaller_steps_is_shown_beside_who_is_cheaper_by_the_hour(
    p4d: PricedInstance,
) -> None:
    assert p4d.billing is not None
    machines = [
        replace(one, billing=p4d.billing.model_copy(update={"billing_increment_s": billed_s}))
        for one, billed_s in zip(from_others(p4d), (600, 3600, 60, 1), strict=True)
    ]
    shown = Sellers(by="accelerator", all_variants=False).shown(machines)
    # "other" is dearer and bills by the hour; of "unknown" no price is known.
    assert [choice.offer.provider for choice in shown] == ["small", "gcp"]


def test_the_cheapest_and_the_cheapest_of_the_large_clouds_are_shown(p4d: PricedInstance) -> None:
    machines = from_others(p4d)[::-1]
    one_row = Sellers(by="accelerator", all_variants=False).shown(machines)
    assert [choice.offer.provider for choice in one_row] == ["small", "gcp"]
    by_seller = Sellers(by="provider", all_variants=False).shown(machines)
    assert [one.offer.provider for one in by_seller] == ["small", "other", "gcp", "unknown"]
    assert Sellers(by="accelerator", all_variants=True).shown(machines) == machines


def test_kernels_that_exchange_over_a_network_know_its_kind(p4d: PricedInstance) -> None:
    instance = p4d.instance
    efa = Site(
        accelerator=p4d.accelerator,
        per_node=8,
        nodes=2,
        intra_link=instance.intra_link,
        inter_link=instance.inter_link,
    )
    other = replace(efa, inter_link=efa.inter_link.model_copy(update={"name": "InfiniBand"}))
    assert (efa.fabric, other.fabric) == ("efa", "rdma")
    across, inside = Layout(tensor=16), Layout(data=2, tensor=8)
    assert links_used(across, efa) != links_used(across, other)
    assert links_used(inside, efa) == links_used(inside, other)
