"""What keeping and moving data costs: `data/storage.csv` and what `data/curated/storage.csv` adds.

Prices are for a "GB", which is not the same for all sellers; `gb_bytes` says what each means. The
tiers of a price are marginal: each applies to the bytes within it and to no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Literal

from ..csv_rows import build_row, columns_of, read_rows
from ..embedded import CURATED_DIR, DATA_DIR
from ..types import CatalogueRow

COLUMNS = columns_of("provider,region,item,tier,usd,source")
TABLES = (DATA_DIR / "storage.csv", CURATED_DIR / "storage.csv")
EVERY_REGION = "*"

StorageItem = Literal[
    "object_storage_usd_per_gb_month",
    "block_storage_usd_per_gb_month",
    "internet_egress_usd_per_gb",
    "inter_region_usd_per_gb",
    "cross_zone_usd_per_gb",
]

DECIMAL_GB = 10**9
BINARY_GB = 2**30
GB_IS_2_30 = {
    "aws": "100 GB are 107,374,182,400 bytes, and 1 TB 1,024 GB: aws.amazon.com/s3/faqs (billing)",
    "gcp": "usage is calculated in GB of 2^30 bytes: cloud.google.com/storage/pricing",
}
"""Sellers whose "GB" is 2^30 bytes for storage and traffic, with where they say so. For all others
it is taken as 10^9 bytes, under which the same bytes cost up to 7.4 % more."""

_GIB_TIER = re.compile(r"\bGiB\b")
_RANGE = re.compile(r"(?:(?P<first>\d+)-(?P<last>\d+)|>(?P<above>\d+))TB$")


class StorageRow(CatalogueRow):
    """One price of storage or of traffic."""

    provider: str
    region: str
    """As the provider names it; "*" for every region without a row of its own."""
    item: StorageItem
    tier: str | None
    """What the price is for: a range of the month's amount ("10-50TB"), or a kind of disk."""
    usd: Decimal
    """US dollars for one GB, or for one GB and month."""
    source: str


@dataclass(frozen=True, kw_only=True)
class PriceTier:
    """The price of the bytes within one range of an amount."""

    name: str | None
    first_bytes: int
    """Where the range begins."""
    last_bytes: int | None
    """Where it ends; None: it has no end."""
    usd_per_gb: Decimal
    gb_bytes: int
    """Bytes of what the seller calls a GB: 10^9 or 2^30."""
    source: str


@dataclass(frozen=True, kw_only=True)
class StoragePrices:
    """What one region of a provider charges for data; an empty tuple is unknown, not free."""

    object_storage: tuple[PriceTier, ...]
    """US dollars per GB and month, by how much is kept."""
    internet_egress: tuple[PriceTier, ...]
    """US dollars per GB to the internet, by how much is sent in a month. Free allowances of a
    provider (AWS: 100 GB a month) are not taken off."""
    block_storage: tuple[PriceTier, ...]
    """US dollars per GB and month: one price for each kind of disk, not a tier."""
    inter_region: tuple[PriceTier, ...]
    """US dollars per GB to another region of the same provider."""
    cross_zone: tuple[PriceTier, ...]
    """US dollars per GB to another zone of the region, charged to the sender and to the receiver:
    a byte that crosses costs twice this."""

    def object_storage_usd_per_month(self, kept_bytes: int) -> Decimal | None:
        """Return what a month of these bytes costs; None where it is not known."""
        return tiered_usd(kept_bytes, self.object_storage)

    def internet_egress_usd(self, sent_bytes: int) -> Decimal | None:
        """Return what sending these bytes within one month costs; None where it is not known."""
        return tiered_usd(sent_bytes, self.internet_egress)

    def inter_region_usd(self, sent_bytes: int) -> Decimal | None:
        """Return what sending these bytes to another region costs; None where it is not known."""
        return tiered_usd(sent_bytes, self.inter_region)

    def cross_zone_usd(self, sent_bytes: int) -> Decimal | None:
        """Return what these bytes cost on both sides of two zones; None where it is not known."""
        usd = tiered_usd(sent_bytes, self.cross_zone)
        return None if usd is None else 2 * usd

    def block_storage_usd_per_month(self, disk_bytes: int, kind: str) -> Decimal | None:
        """Return what a disk of a kind costs a month; None where the kind has no known price."""
        return tiered_usd(disk_bytes, [one for one in self.block_storage if one.name == kind])


def storage_prices(provider: str, region: str) -> StoragePrices:
    """Return what is known of a region's prices for data; what is not known is empty."""
    return StoragePrices(
        object_storage=_tiers(provider, region, "object_storage_usd_per_gb_month"),
        internet_egress=_tiers(provider, region, "internet_egress_usd_per_gb"),
        block_storage=_tiers(provider, region, "block_storage_usd_per_gb_month"),
        inter_region=_tiers(provider, region, "inter_region_usd_per_gb"),
        cross_zone=_tiers(provider, region, "cross_zone_usd_per_gb"),
    )


def tiered_usd(amount_bytes: int, tiers: Iterable[PriceTier]) -> Decimal | None:
    """Return what an amount costs when each tier's price holds for the bytes within the tier.

    None where some of the bytes are in no tier: what they cost is not known. Nothing costs nothing
    whatever is known.

    Raises:
        ValueError: the amount is below zero.
    """
    if amount_bytes < 0:
        raise ValueError(f"an amount of {amount_bytes} bytes; give 0 or more")
    usd, priced_bytes = Decimal(0), 0
    for tier in tiers:
        end = amount_bytes if tier.last_bytes is None else min(amount_bytes, tier.last_bytes)
        within = max(0, end - tier.first_bytes)
        usd += tier.usd_per_gb * within / tier.gb_bytes
        priced_bytes += within
    return usd if priced_bytes == amount_bytes else None


def gb_bytes(provider: str, tier: str | None = None) -> int:
    """Return the bytes of what a provider calls a GB: 2^30 where it says so, else 10^9.

    >>> gb_bytes("aws"), gb_bytes("oci"), gb_bytes("azure", "Premium SSD P30 LRS (1024 GiB)")
    (1073741824, 1000000000, 1073741824)
    """
    binary = provider in GB_IS_2_30 or _GIB_TIER.search(tier or "") is not None
    return BINARY_GB if binary else DECIMAL_GB


def read_storage(tables: Iterable[Path] = TABLES, *, validate: bool = False) -> list[StorageRow]:
    """Return the rows of all tables: the gathered one, and what is kept by hand beside it.

    Raises:
        ValueError: the columns of a table are others.
    """
    return [
        build_row(StorageRow, values, validate)
        for table in tables
        for values in read_rows(table, COLUMNS)
    ]


@cache
def dearest_usd_per_gb(item: StorageItem) -> Decimal:
    """Return the highest price of a GB that any row states for an item, dollars."""
    return max(row.usd for rows in _by_place().values() for row in rows if row.item == item)


def _tiers(provider: str, region: str, item: StorageItem) -> tuple[PriceTier, ...]:
    rows = _by_place().get((provider, region, item))
    rows = rows or _by_place().get((provider, EVERY_REGION, item), ())
    return tuple(sorted(map(_tier, rows), key=lambda tier: tier.first_bytes))


def _tier(row: StorageRow) -> PriceTier:
    gb = gb_bytes(row.provider, row.tier)
    tb = gb * (1024 if gb == BINARY_GB else 1000)
    found = _RANGE.search(row.tier or "")
    first, last = 0, None
    if found is not None:
        first = int(found["first"] or found["above"]) * tb
        last = int(found["last"]) * tb if found["last"] else None
    return PriceTier(
        name=row.tier,
        first_bytes=first,
        last_bytes=last,
        usd_per_gb=row.usd,
        gb_bytes=gb,
        source=row.source,
    )


@cache
def _by_place() -> dict[tuple[str, str, str], Sequence[StorageRow]]:
    places: dict[tuple[str, str, str], list[StorageRow]] = {}
    for row in read_storage():
        places.setdefault((row.provider, row.region, row.item), []).append(row)
    return dict(places)
