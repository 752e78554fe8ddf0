"""Every trap of the smaller sellers' prices is a fixture here, and a rule with a name.

The shape of a row: https://github.com/dstackai/gpuhunt/blob/master/src/gpuhunt/_internal/models.py;
clusters of several nodes (`pod_counts`):
https://github.com/dstackai/gpuhunt/blob/master/src/gpuhunt/providers/runpod.py; A100s of 40 and
80 GB under names that begin alike:
https://github.com/dstackai/gpuhunt/blob/master/src/gpuhunt/providers/lambdalabs.py.
The address of a report stands beside the fixture that follows it. Where there is none, no report
was found by a search of public threads (2026-11-26), and the row is made up in gpuhunt's shape.
"""

from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import pytest

from gpuplan.catalog.clouds.interface import PriceRow, Refused
from gpuplan.catalog.clouds.sellers.hosted_rows import _seller_types, read_hosted
from gpuplan.catalog.embedded import embedded_catalogue

CATALOGUE = embedded_catalogue()
MEMORY = {one.name: one.memory_bytes for one in CATALOGUE.accelerators.values()}
DAY = date(2026, 11, 22)


def item(name: str, usd: float, count: int = 8, location: str = "us-east-1", **changes):
    given = {
        "instance_name": name,
        "location": location,
        "price": usd,
        "gpu_count": count,
        "gpu_name": "H100",
        "gpu_memory": 80.0,
        "spot": False,
        "provider_data": {},
    }
    return SimpleNamespace(**(given | changes))


def read(provider: str, *items, regions=("global",)):
    unmapped: set[str] = set()
    instances = {
        name: row for (seller, name), row in CATALOGUE.instances.items() if seller == provider
    }
    found = list(
        read_hosted(
            items,
            provider,
            instances,
            MEMORY,
            regions=regions,
            published=DAY,
            unmapped=unmapped,
        )
    )
    return found, unmapped


def rows(provider: str, *items, **options) -> list[PriceRow]:
    return [one for one in read(provider, *items, **options)[0] if isinstance(one, PriceRow)]


def rules(provider: str, *items) -> list[str]:
    return [one.rule for one in read(provider, *items)[0] if isinstance(one, Refused)]


def test_the_consoles_name_and_the_table_say_which_type_it_is() -> None:
    found, unmapped = read(
        "lambda", item("gpu_8x_h100_sxm5", 31.92), item("gpu_1x_h100_sxm5", 4.29, 1)
    )
    prices = {one.instance_type: one for one in found if isinstance(one, PriceRow)}
    assert {name: one.usd_per_hour for name, one in prices.items()} == {
        "gpu_8x_h100_sxm5": Decimal("31.92"),
        "lambda-h100-sxm-on-demand": Decimal("4.29"),
    }
    assert unmapped == set() and {one.price_date for one in prices.values()} == {DAY}


def test_a_seller_of_one_price_for_all_regions_has_the_lowest() -> None:
    [found] = rows(
        "lambda",
        item("gpu_8x_h100_sxm5", 33.0),
        item("gpu_8x_h100_sxm5", 31.92, location="us-west-2"),
    )
    assert found.usd_per_hour == Decimal("31.92")
    assert found.note == "in us-west-2; up to $33 elsewhere"


def test_secure_and_community_pods_are_told_apart_by_their_place() -> None:
    # https://github.com/dstackai/dstack/pull/1891
    name = "NVIDIA H100 80GB HBM3"
    found, unmapped = read(
        "runpod",
        item(name, 2.99, 1, "US-KS-2"),
        item(name, 2.69, 1, "CA"),
        item(name, 23.92, 8, "US-KS-2"),
        item(name, 24.9, 8, "CA"),
    )
    assert [one.instance_type for one in found if isinstance(one, PriceRow)] == [
        "8x H100 SXM (secure pod)",
        "runpod-h100-sxm-community",
        "runpod-h100-sxm-secure",
    ]
    assert unmapped == {"NVIDIA H100 80GB HBM3 (8 x H100, on-demand)"}


def test_spot_and_regions_of_their_own() -> None:
    name = "gpu-h100-sxm 8gpu-128vcpu-1600gb"
    found = rows(
        "nebius",
        item(name, 23.6, location="eu-north1"),
        item(name, 11.2, location="eu-north1", spot=True),
        item(name, 23.6, location="mars-1"),
        regions=("eu-north1",),
    )
    assert [(one.region, one.purchase) for one in found] == [
        ("eu-north1", "on-demand"),
        ("eu-north1", "spot"),
    ]


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        # https://github.com/dstackai/gpuhunt/pull/36
        (item("gpu_8x_h100_sxm5", 0.0), "not-positive"),
        (item("gpu_8x_h100_sxm5", -1.0), "not-positive"),
        (item("gpu_8x_h100_sxm5", float("nan")), "not-a-number"),
        (item("gpu_8x_h100_sxm5", float("inf")), "not-a-number"),
        (item("gpu_8x_h100_sxm5", 15.9, 4), "seller-accelerators"),
        # https://github.com/skypilot-org/skypilot-catalog/pull/15
        (item("gpu_8x_a100", 14.3, gpu_name="A100", gpu_memory=80.0), "seller-memory"),
        # https://github.com/dstackai/dstack/pull/3214
        (item("gpu_8x_h100_sxm5", 31.9, provider_data={"pod_counts": [2]}), "runpod-cluster"),
    ],
)
def test_a_row_of_something_else_is_refused_by_name(row, rule) -> None:
    assert rules("lambda", row) == [rule]


def test_two_prices_of_one_place_are_none() -> None:
    # https://github.com/skypilot-org/skypilot-catalog/pull/44
    # https://github.com/skypilot-org/skypilot/issues/3750
    two = (item("gpu_8x_h100_sxm5", 31.92), item("gpu_8x_h100_sxm5", 3.19))
    assert rules("lambda", *two) == ["listed-twice"]
    assert rows("lambda", *two) == []
    assert len(rows("lambda", two[0], two[0])) == 1


def test_a_renamed_type_is_unmapped_and_hosts_alone_are_nothing() -> None:
    # https://github.com/skypilot-org/skypilot/issues/6755 (a new one)
    # https://github.com/transformerlab/transformerlab-app/pull/2307 (another name)
    # https://github.com/skypilot-org/skypilot/pull/9556 (a host)
    found, unmapped = read("lambda", item("gpu_8x_h100_sxm6", 31.9), item("cpu_4x", 0.1, 0))
    assert found == [] and unmapped == {"gpu_8x_h100_sxm6 (8 x H100, on-demand)"}


def test_the_table_names_types_that_the_catalogue_has() -> None:
    for provider, rows in _seller_types().items():
        for row in rows:
            instance = CATALOGUE.instances[provider, row["instance_type"]]
            assert instance.accelerators == int(row["accelerators"])
            assert row["source"]
