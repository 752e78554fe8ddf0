"""Bridges that join some of the cards of a node: a ring over more is as fast as their slots."""

from dataclasses import replace

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.planner.hardware.bridges import link_of_node
from gpuplan.planner.plan.question import Machine, Money
from gpuplan.planner.search.machines.equal_machines import by_machine
from gpuplan.planner.search.machines.offers import PricedInstance, survey
from gpuplan.planner.validation.record_machines import intra_link


def rate_of(device: str, per_node: int) -> float | None:
    """Return what ranks of a node are taken to talk over, of a record that does not say it."""
    assumed: list[str] = []
    accelerator = load_catalogue().accelerators[device]
    return intra_link(accelerator, (), per_node, assumed).bytes_per_s


def sold(name: str) -> PricedInstance:
    (found,) = survey(load_catalogue(), Machine(instances=(name,)), Money()).choices
    return found


@pytest.mark.parametrize(
    ("device", "joined", "bridged", "more", "slots"),
    [
        ("RTX-3090", 2, 56.25e9, 4, 31e9),
        ("RTX-A6000", 2, 56.25e9, 8, 31e9),
        ("Quadro-RTX-8000", 2, 50e9, 10, 16e9),
        ("H100-94GB-NVL", 2, 300e9, 4, 63e9),
        ("H200-141GB-NVL", 4, 450e9, 8, 63e9),
        ("MI210", 4, 150e9, 8, 31e9),
    ],
)
def test_a_bridge_joins_so_many_cards_and_a_ring_over_more_crosses_their_slots(
    device: str, joined: int, bridged: float, more: int, slots: float
) -> None:
    assert rate_of(device, joined) == bridged
    assert rate_of(device, more) == slots


@pytest.mark.parametrize("device", ["A100-80GB-SXM", "A100-80GB-PCIe", "L40S", "TPU-v5e"])
def test_other_links_are_as_fast_however_many_share_them(device: str) -> None:
    assert rate_of(device, 8) == rate_of(device, 2)


def test_a_machine_that_states_no_link_has_the_slots_of_its_cards_where_bridges_are_too_few() -> (
    None
):
    """As own machines of a laboratory: until then all of eight shared a bridge."""
    unknown = Link(name=None, bytes_per_s=None)
    devices = load_catalogue().accelerators
    assert link_of_node(unknown, devices["RTX-3090"], 8).bytes_per_s == 31e9
    assert link_of_node(unknown, devices["RTX-3090"], 2) is unknown
    assert link_of_node(unknown, devices["H100-80GB-SXM"], 8) is unknown


def test_what_nothing_is_known_of_stays_as_it_is() -> None:
    device = load_catalogue().accelerators["H100-94GB-NVL"]
    formless = device.model_copy(update={"form_factor": None})
    stated = Link(name="NVLink4 bridge", bytes_per_s=300e9)
    assert link_of_node(stated, formless, 4) is stated


def test_four_bridged_cards_of_azure_are_as_fast_as_their_slots_and_two_as_their_bridge() -> None:
    two, four = sold("Standard_NC48ads_A100_v4"), sold("Standard_NC96ads_A100_v4")
    assert four.instance.intra_link.bytes_per_s == two.instance.intra_link.bytes_per_s == 300e9
    assert two.one_node.intra_link.bytes_per_s == 300e9
    assert four.one_node.intra_link.bytes_per_s == 31e9


def test_machines_are_equal_by_what_all_their_ranks_talk_over() -> None:
    """Four bridged cards are as fast as four without a bridge."""
    four = sold("Standard_NC96ads_A100_v4")
    plain = four.instance.model_copy(update={"intra_link": Link(name="PCIe4", bytes_per_s=31e9)})
    (found,) = by_machine([four, replace(four, instance=plain)], by_memory=False, by_cpus=False)
    assert len(found) == 2
