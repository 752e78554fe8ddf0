"""Storage and traffic: marginal tiers, whose GB is meant, and what is not known."""

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.terms.storage import (
    BINARY_GB,
    DECIMAL_GB,
    GB_IS_2_30,
    PriceTier,
    gb_bytes,
    read_storage,
    storage_prices,
    tiered_usd,
)

TIB = 2**40
AWS = storage_prices("aws", "us-east-1")


def test_each_tier_is_charged_for_its_own_bytes() -> None:
    # 10 TB at 0.09 and 1 TB at 0.085, where 1 TB is 1,024 GB of 2^30 bytes.
    assert AWS.internet_egress_usd(11 * TIB) == Decimal("921.60") + Decimal("87.04")
    # 10, 40, 100 and 50 TB.
    assert AWS.internet_egress_usd(200 * TIB) == 1024 * Decimal("13.8")


def test_a_tier_ends_exactly_where_the_next_begins() -> None:
    at_edge, above = (AWS.internet_egress_usd(10 * TIB + extra) for extra in (0, BINARY_GB))
    assert at_edge is not None and above is not None
    assert above - at_edge == Decimal("0.085")


def test_more_than_the_first_tier_is_kept_at_the_price_of_each() -> None:
    in_tib = (50 * Decimal("0.023"), 450 * Decimal("0.022"), 100 * Decimal("0.021"))
    assert AWS.object_storage_usd_per_month(600 * TIB) == 1024 * sum(in_tib)


def test_bytes_in_no_tier_have_no_known_price() -> None:
    azure = storage_prices("azure", "eastus")
    assert azure.object_storage_usd_per_month(50 * 10**12) == 50_000 * Decimal("0.018")
    assert azure.object_storage_usd_per_month(50 * 10**12 + 1) is None
    assert storage_prices("aws", "eu-north-1").internet_egress_usd(1) is None
    assert storage_prices("nobody", "nowhere").object_storage_usd_per_month(1) is None


def test_nothing_costs_nothing_and_free_traffic_is_zero_dollars() -> None:
    assert storage_prices("nobody", "nowhere").internet_egress_usd(0) == 0
    assert storage_prices("lambda", "global").internet_egress_usd(10**15) == 0
    with pytest.raises(ValueError, match="-1 bytes"):
        tiered_usd(-1, ())


def test_every_region_has_the_prices_of_the_star_and_a_row_of_its_own_comes_first() -> None:
    oci = storage_prices("oci", "eu-frankfurt-1")
    # 10 TB are free; a GB of OCI is taken as 10^9 bytes.
    assert oci.internet_egress_usd(11 * 10**12) == Decimal("8.5")
    regions = [storage_prices("azure", name) for name in ("eastus", "westeurope", "japaneast")]
    prices = [one.object_storage_usd_per_month(DECIMAL_GB) for one in regions]
    assert prices == [Decimal("0.018"), Decimal("0.018032"), None]


def test_a_disk_is_priced_by_its_kind() -> None:
    assert AWS.block_storage_usd_per_month(100 * BINARY_GB, "gp3") == Decimal("8")
    assert AWS.block_storage_usd_per_month(100 * BINARY_GB, "floppy") is None
    (azure,) = storage_prices("azure", "eastus").block_storage
    assert azure.gb_bytes == BINARY_GB


def test_a_byte_between_zones_is_charged_on_both_sides() -> None:
    assert AWS.cross_zone_usd(BINARY_GB) == Decimal("0.02")
    assert AWS.inter_region_usd(BINARY_GB) == Decimal("0.02")
    assert storage_prices("gcp", "us-central1").cross_zone_usd(1) is None


def test_those_who_count_in_powers_of_two_say_where() -> None:
    assert {gb_bytes(one) for one in GB_IS_2_30} == {BINARY_GB}
    assert all("/" in source for source in GB_IS_2_30.values())
    assert gb_bytes("oci") == DECIMAL_GB


def test_every_shipped_row_is_read_and_ranges_leave_no_gap() -> None:
    rows = read_storage(validate=True)
    assert rows == read_storage()
    assert all(row.usd >= 0 and row.source for row in rows)
    for provider, region in {(row.provider, row.region) for row in rows}:
        prices = storage_prices(provider, region)
        for tiers in (prices.object_storage, prices.internet_egress):
            assert not tiers or tiers[0].first_bytes == 0
            assert all(a.last_bytes == b.first_bytes for a, b in pairwise(tiers))
        kinds = [one.name for one in prices.block_storage]
        assert len(kinds) == len(set(kinds))


def tiers_of(ends: list[int], prices: list[int]) -> list[PriceTier]:
    starts = [0, *ends]
    return [
        PriceTier(
            name=None,
            first_bytes=start,
            last_bytes=end,
            usd_per_gb=Decimal(price),
            gb_bytes=1,
            source="",
        )
        for start, end, price in zip(starts, [*ends, None], prices, strict=True)
    ]


@given(
    ends=st.lists(st.integers(1, 60), min_size=3, max_size=3, unique=True).map(sorted),
    prices=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    amount=st.integers(0, 90),
)
def test_the_sum_is_that_of_every_byte_by_itself(
    ends: list[int], prices: list[int], amount: int
) -> None:
    expected = sum(prices[sum(byte >= end for end in ends)] for byte in range(amount))
    assert tiered_usd(amount, tiers_of(ends, prices)) == expected
