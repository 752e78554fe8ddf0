"""Traps of a marketplace's offers, each a fixture in gpuhunt's shape, and a rule with a name.

https://github.com/dstackai/gpuhunt/blob/master/src/gpuhunt/providers/vastai.py (2026-11-25): each
offer is one machine; "A100 PCIE" and "A100 SXM4" both come out as "A100"; `min_bid` is a row of its
own; an offer without a disk size asked for has the rent of the whole disk in its price. Prices of
0 and NaN are made up: no report was found by a search of public threads (2026-11-26).
"""

from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import pytest

from gpuplan.catalog.clouds.interface import PriceRow, Refused
from gpuplan.catalog.clouds.sellers.marketplace_rows import read_marketplace
from gpuplan.catalog.embedded import embedded_catalogue

CATALOGUE = embedded_catalogue()
MEMORY = {one.name: one.memory_bytes for one in CATALOGUE.accelerators.values()}


def offer(usd: float, name: str = "RTX4090", **changes) -> SimpleNamespace:
    given = {
        "instance_name": "9000001",
        "location": "us-texas",
        "price": usd,
        "gpu_count": 1,
        "gpu_name": name,
        "gpu_memory": 24.0,
        "spot": False,
    }
    return SimpleNamespace(**(given | changes))


def read(*items: SimpleNamespace, regions: tuple[str, ...] = ("global",)):
    instances = {
        name: row for (seller, name), row in CATALOGUE.instances.items() if seller == "vast-ai"
    }
    unmapped: set[str] = set()
    found = read_marketplace(
        items,
        "vast-ai",
        instances,
        MEMORY,
        regions=regions,
        today=date(2026, 11, 25),
        unmapped=unmapped,
    )
    return list(found), unmapped


THREE = (offer(0.25), offer(0.31), offer(0.9))


def test_a_type_has_the_middle_of_its_offers_and_not_the_cheapest() -> None:
    # https://github.com/skypilot-org/skypilot/issues/4904
    [row], unmapped = read(*THREE)
    assert isinstance(row, PriceRow) and unmapped == set()
    assert (row.instance_type, row.usd_per_hour) == (
        "vast-ai-rtx-4090-on-demand",
        Decimal("0.31"),
    )
    assert row.note == "the middle of 3 offers, $0.25 to $0.9"


@pytest.mark.parametrize(
    ("items", "rule"),
    [
        # https://github.com/vast-ai/vast-cli/pull/403
        ((offer(0.12, spot=True),), "marketplace-bid"),
        (THREE[:2], "marketplace-few-offers"),
        # https://github.com/dstackai/gpuhunt/pull/93
        ((offer(0.9, "A100", gpu_memory=80.0),), "marketplace-form"),
        # https://github.com/dstackai/gpuhunt/issues/32
        ((offer(0.2, gpu_memory=48.0),), "seller-memory"),
        ((offer(0.0),), "not-positive"),
        ((offer(float("nan")),), "not-a-number"),
    ],
)
def test_an_offer_that_says_something_else_is_refused_by_name(items, rule: str) -> None:
    [row], _ = read(*items)
    assert isinstance(row, Refused) and row.rule == rule


def test_other_sizes_are_nothing_and_other_accelerators_unmapped() -> None:
    assert read(offer(2.0, gpu_count=8)) == ([], set())
    assert read(offer(2.0, "RTX9090")) == ([], {"1 x RTX9090"})
    assert read(*THREE, regions=("eu",)) == ([], set())
