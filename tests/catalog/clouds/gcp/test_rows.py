"""Every trap of Google's SKUs is a fixture here, and a rule with a name.

Beside a fixture is the address of the report that it follows. Where there is none, no report was
found by a search of public threads (2026-11-26), and the SKU is made up in the documented shape.
"""

from datetime import date
from decimal import Decimal

import pytest

from gpuplan.catalog.clouds.gcp.quota import quota_of
from gpuplan.catalog.clouds.gcp.rows import calendar_usd_per_hour, machine_prices
from gpuplan.catalog.clouds.gcp.skus import Sku, parts_of_series, read_skus
from gpuplan.catalog.clouds.interface import PriceRow, Refused
from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.types import CommitmentRow

TODAY = date(2026, 11, 23)
REGION = "us-central1"


def sku(description: str, usd: str | None, group: str = "GPU", unit: str = "h", **changes) -> Sku:
    given = {
        "description": description,
        "usage_type": "OnDemand",
        "resource_group": group,
        "regions": (REGION,),
        "unit": unit,
        "currency": "USD",
        "usd": None if usd is None else Decimal(usd),
    }
    return Sku(**(given | changes))


A3 = [
    sku("A3 Instance Core running in Americas", "0.025498", "CPU"),
    sku("A3 Instance Ram running in Americas", "0.0022203", "RAM", "GiBy.h"),
    sku("SSD backed Local Storage", "0.08", "LocalSSD", "GiBy.mo"),
]
H100 = sku("Nvidia H100 80GB GPU running in Americas", "9.796550569")


def read_machine(skus: list[Sku], name: str = "a3-highgpu-8g", region: str = REGION):
    instance = embedded_catalogue().instances["gcp", name]
    return list(machine_prices(read_skus(skus), [instance], [(region, name)], today=TODAY))


def test_the_parts_add_up_to_the_list_price() -> None:
    [read] = read_machine([*A3, H100])
    assert isinstance(read, PriceRow)
    assert read.usd_per_hour.quantize(Decimal("0.01")) == Decimal("88.49")


def test_spot_is_another_sum() -> None:
    spot = [
        sku("Spot Preemptible A3 Instance Core running in Americas", "0.0051", "CPU"),
        sku("Spot Preemptible A3 Instance Ram running in Americas", "0.0004", "RAM", "GiBy.h"),
        sku(
            "Nvidia H100 80GB GPU attached to Spot Preemptible VMs running in Americas",
            "2.25",
            usage_type="Preemptible",
        ),
        sku(
            "SSD backed Local Storage attached to Spot Preemptible VMs",
            "0.032",
            "LocalSSD",
            "GiBy.mo",
        ),
    ]
    on_demand, cheaper = read_machine([*A3, H100, *spot])
    assert isinstance(on_demand, PriceRow) and isinstance(cheaper, PriceRow)
    assert (on_demand.purchase, cheaper.purchase) == ("on-demand", "spot")
    assert cheaper.usd_per_hour < on_demand.usd_per_hour / 3


def committed(years: int = 1) -> list[Sku]:
    """The parts of an A3 for a term, described as https://cloud.google.com/skus lists them."""
    end = f"for {years} Year{'s' if years > 1 else ''}"
    use = {"usage_type": f"Commit{years}Yr"}
    start = "Commitment v1:"
    return [
        sku(f"{start} A3 Cpu in Americas {end}", "0.01", "CPU", **use),
        sku(f"{start} A3 Ram in Americas {end}", "0.001", "RAM", "GiBy.h", **use),
        sku(f"{start} Nvidia H100 80GB GPU running in Americas {end}", "5", **use),
        sku(f"{start} Local SSD In Americas {end}", "0.073", "LocalSSD", "GiBy.mo", **use),
    ]


@pytest.mark.parametrize("years", [1, 3])
def test_a_commitment_is_the_sum_of_its_own_skus(years: int) -> None:
    [on_demand, read] = read_machine([*A3, H100, *committed(years)])
    assert isinstance(on_demand, PriceRow) and isinstance(read, CommitmentRow)
    # 208 cores, 1,872 GiB, eight accelerators and 16 × 375 GiB of local SSD.
    assert (read.term_years, read.usd_per_hour) == (years, Decimal("44.552"))
    assert read.source != on_demand.source


def test_a_commitment_that_lacks_a_part_has_no_price() -> None:
    # How the parts are named: https://github.com/vantage-sh/ec2instances.info/pull/919
    [read] = read_machine(committed()[1:])
    assert isinstance(read, Refused)
    assert (read.rule, read.why) == ("gcp-incomplete-sum", "no 1 year price of its core")


# As a public test of a collector of prices had them from the API on 2026-06-14; they are listed at
# https://cloud.google.com/skus.
V5E = sku("TpuV5e running in Delhi", "1.44132", "TPU", regions=("asia-south2",))
V7 = sku("TPU7x running in Americas", "12", "TPU", regions=("us-west1", "us-central1", "us-east1"))
SPOT_V5E = sku(
    "TpuV5e attached to Spot Preemptible VMs running in Singapore",
    "0.78",
    "TPU",
    regions=("asia-southeast1",),
    usage_type="Preemptible",
)
V5P_FOR_3_YEARS = sku(
    "Commitment v1: TpuV5p running in Netherlands for 3 Years",
    "1.911",
    "TPU",
    regions=("europe-west4",),
    usage_type="Commit3Yr",
)
CALENDAR_V5P = sku(
    "Reserved TpuV5p in Delhi in Calendar Mode", "2.94", "TPU", regions=("asia-south2",)
)


@pytest.mark.parametrize(
    ("one", "name", "usd"),
    [
        (V5E, "ct5lp-hightpu-8t", "11.53056"),
        (V7, "tpu7x-standard-4t", "48"),
        (SPOT_V5E, "ct5lp-hightpu-4t", "3.12"),
        (V5P_FOR_3_YEARS, "ct5p-hightpu-4t", "7.644"),
    ],
)
def test_a_tpu_is_sold_by_the_chip(one: Sku, name: str, usd: str) -> None:
    [read] = read_machine([one, CALENDAR_V5P], name, one.regions[-1] if one is not V7 else REGION)
    assert isinstance(read, PriceRow | CommitmentRow)
    assert read.usd_per_hour == Decimal(usd)


def test_a_tpu_in_calendar_mode_is_no_tpu_on_demand() -> None:
    read = read_skus([CALENDAR_V5P])
    assert read.usd == {("TpuV5p", "asia-south2", "calendar"): Decimal("2.94")}
    instance = embedded_catalogue().instances["gcp", "ct5p-hightpu-4t"]
    assert calendar_usd_per_hour(read, instance, "asia-south2") == Decimal("11.76")
    assert calendar_usd_per_hour(read, instance, REGION) is None
    assert read_machine([CALENDAR_V5P], "ct5p-hightpu-4t", "asia-south2") == []
    assert read_skus([sku("TpuV9z running in Delhi", "1", "TPU")]).unmapped == {"TpuV9z"}


@pytest.mark.parametrize(
    ("other", "rule"),
    [
        # https://cloud.google.com/skus (2026-11-23), where each of these descriptions is listed.
        (
            sku(
                "Commitment v1: Nvidia H100 80GB GPU running in Americas for 1 Year",
                "5.5",  # Made up: the description of a term, marked as on-demand use.
            ),
            "gcp-commitment",
        ),
        # https://github.com/nozomi-koborinai/gcp-cost-mcp-server/issues/14
        (sku("Nvidia H100 80GB GPU running in Americas Flex CUD", "7.0"), "gcp-commitment"),
        # https://github.com/skypilot-org/skypilot/pull/9634
        (
            sku(
                "Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in Americas",
                "4.9",
            ),
            "gcp-dws",
        ),
        (
            sku("Reserved Nvidia H100 80GB GPU in Americas in Calendar Mode", "0"),
            "gcp-calendar",
        ),
        (sku("Reserved Nvidia H100 80GB GPU in Americas", "0"), "gcp-reserved"),
        (sku("Nvidia H100 80GB GPU Sole Tenancy running in Americas", "9"), "gcp-other-product"),
        (sku("Nvidia H100 80GB GPU running in Americas", "0"), "not-positive"),
        (sku("Nvidia H100 80GB GPU running in Americas", "9", unit="mo"), "gcp-unit"),
        (sku("Nvidia H100 80GB GPU running in Americas", "9", currency="EUR"), "currency"),
        (sku("Nvidia H100 80GB GPU running in Americas", None), "not-a-number"),
    ],
)
def test_a_sku_of_something_else_is_refused_by_name(other: Sku, rule: str) -> None:
    assert [one.rule for one in read_skus([other]).refused] == [rule]
    [read] = read_machine([*A3, other, H100])
    assert isinstance(read, PriceRow)
    assert read.usd_per_hour.quantize(Decimal("0.01")) == Decimal("88.49")


def test_mega_is_called_plus_in_some_regions() -> None:
    # https://github.com/Cyclenerd/google-cloud-pricing-cost-calculator/issues/249
    # https://github.com/dstackai/gpuhunt/pull/132
    host = [
        sku("A3Plus Instance Core running in Americas", "0.026924", "CPU"),
        sku("A3Plus Instance Ram running in Americas", "0.002344", "RAM", "GiBy.h"),
        A3[2],
    ]
    for name in ("Nvidia H100 80GB Plus GPU", "Nvidia H100 80GB Mega GPU"):
        gpu = sku(f"{name} running in Americas", "10.344276")
        [read] = read_machine([*host, gpu], "a3-megagpu-8g")
        assert isinstance(read, PriceRow)
        assert read.usd_per_hour.quantize(Decimal("0.1")) == Decimal("93.4")


def test_a_b200_machine_is_its_slices_alone() -> None:
    # https://github.com/dstackai/gpuhunt/pull/176
    # https://github.com/skypilot-org/skypilot/pull/8125
    gpu = sku("A4 Nvidia B200 (1 gpu slice) running in Americas", "16.11")
    [read] = read_machine([*A3, gpu], "a4-highgpu-8g")
    assert isinstance(read, PriceRow)
    assert read.usd_per_hour == Decimal("128.88")


def test_a_spot_sku_that_google_marks_as_on_demand_is_spot() -> None:
    # https://github.com/skypilot-org/skypilot/pull/8125
    spot = sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", "4.9542")
    plain = sku("A4 Nvidia B200 (1 gpu slice) running in Americas", "16.11")
    prices = read_skus([spot, plain])
    assert prices.refused == []
    assert {key[2]: usd for key, usd in prices.usd.items()} == {
        "spot": Decimal("4.9542"),
        "on-demand": Decimal("16.11"),
    }


def test_two_prices_for_one_part_are_none() -> None:
    # https://github.com/cloudpilot-ai/karpenter-provider-gcp/pull/218
    # https://github.com/vantage-sh/ec2instances.info/pull/886
    other = sku("Nvidia H100 80GB GPU running in Americas", "8.0")
    assert read_machine([*A3, H100, other]) == []
    assert [one.rule for one in read_skus([H100, other]).refused] == ["gcp-ambiguous-sku"]
    assert read_skus([H100, H100]).refused == []


def test_a_machine_that_lacks_a_part_has_no_price() -> None:
    # Machines alone, at $0.94 for $4.05: https://github.com/skypilot-org/skypilot-catalog/issues/31
    [read] = read_machine([*A3[1:], H100])
    assert isinstance(read, Refused)
    assert (read.rule, read.why) == ("gcp-incomplete-sum", "no on-demand price of its core")


def test_an_accelerator_without_a_machine_type_is_counted() -> None:
    new = sku("Nvidia H900 900GB GPU running in Americas", "99")
    assert read_skus([new]).unmapped == {"Nvidia H900 900GB GPU"}


def test_series_of_the_tables_are_machine_types_of_the_catalogue() -> None:
    names = {name for provider, name in embedded_catalogue().instances if provider == "gcp"}
    for series in parts_of_series():
        assert any(name.startswith(f"{series}-") for name in names), series
    assert quota_of("a3-highgpu-8g", "on-demand") is not None
    assert quota_of("a4x-highgpu-4g", "on-demand") is None
