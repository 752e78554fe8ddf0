"""A number of accelerators that nobody sells is a machine of the user's own."""

from typing import Any

import pytest

from gpuplan.catalog.listing.own_machine import ASSUMED, with_own_machines
from gpuplan.catalog.listing.query import parse_filter, select_offers
from gpuplan.catalog.snapshot import Catalogue, load_catalogue


def added(**words: Any) -> list[str]:
    """Return the instance types that are there for a wish beside those of the catalogue."""
    before = load_catalogue()
    after = with_own_machines(before, parse_filter(before, **words))
    new = {offer.instance_type for offer in after.offers}
    return sorted(new - {offer.instance_type for offer in before.offers})


def test_a_machine_that_nobody_sells_is_there_without_a_price() -> None:
    before = load_catalogue()
    wanted = parse_filter(before, accelerators=["RTX-3090:4"])
    catalogue: Catalogue = with_own_machines(before, wanted)
    (offer,) = select_offers(catalogue, wanted)
    assert (offer.accelerator, offer.accelerators) == ("RTX-3090", 4)
    assert offer.on_demand_usd_per_hour is None and offer.source == ASSUMED
    instance = catalogue.instances[offer.provider, offer.instance_type]
    assert instance.vcpus is None and instance.intra_link.bytes_per_s is None


@pytest.mark.parametrize(
    "words",
    [
        {"accelerators": ["H100:8"]},  # It is sold.
        {"accelerators": ["RTX-3090"]},  # One of it is sold, and no number is asked for.
        {"accelerators": ["H100:3"]},  # Of which H100?
        {"accelerators": ["RTX-3090:4"], "providers": ["aws"]},
        {"accelerators": ["RTX-3090:4"], "instance_types": ["p5.48xlarge"]},
        {},
    ],
)
def test_nothing_is_added_where_it_is_sold_or_something_else_is_meant(
    words: dict[str, list[str]],
) -> None:
    assert added(**words) == []
