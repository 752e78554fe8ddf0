"""Rows of gpuhunt's hosted catalogue → prices, or the named rule that refuses them. Pure.

The shape of a row is gpuhunt's `CatalogItem`:
https://github.com/dstackai/gpuhunt/blob/master/src/gpuhunt/_internal/models.py (2026-11-25).
Which of them is which instance type of ours stands in `data/curated/seller_types.csv`, or is the
same name; nothing else is guessed at.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from ...embedded import CURATED_DIR
from ...text.money_cells import decimal_of
from ...types import Instance
from ...vocabulary import OfferPurchase
from ..interface import PriceRow, Refused

CLUSTER_RULE = "runpod-cluster"
"""RunPod sells the same accelerators in clusters of several nodes, at a price of their own."""
COUNT_RULE = "seller-accelerators"
"""A row of another number of accelerators than the type of that name has."""
MEMORY_RULE = "seller-memory"
"""A row whose accelerators have another memory than ours: another device under the same name."""
MEMORY_TOLERANCE = 0.15
"""GB and GiB, and what is reserved, differ by up to this share; 40 GB and 80 GB by far more."""
ANYWHERE = "global"

Place = tuple[str, str, OfferPurchase]
"""(instance type, region or location, purchase)."""


@dataclass(frozen=True, kw_only=True)
class Hosted:
    """One row of one seller, as far as it is read."""

    instance_type: str
    location: str
    purchase: OfferPurchase
    usd_per_hour: Decimal


def read_hosted(
    items: Iterable[Any],
    provider: str,
    instances: Mapping[str, Instance],
    memory_bytes: Mapping[str, int],
    *,
    regions: Iterable[str],
    published: date,
    unmapped: set[str],
) -> Iterator[PriceRow | Refused]:
    """Yield a price for each type and region, or why a row is not taken.

    A seller whose prices the catalogue has for all its regions together has the lowest of them.

    Args:
        items: Rows of gpuhunt.
        provider: Whose they are, by our name.
        instances: Our types of it.
        memory_bytes: Of our accelerators, by name.
        regions: That are asked for.
        published: When the catalogue was gathered.
        unmapped: Takes the names of types that the catalogue does not have.
    """
    wanted = frozenset(regions)
    by_location: dict[Place, set[Hosted]] = {}
    for item in items:
        read = _read(item, provider, instances, memory_bytes)
        if isinstance(read, str):
            unmapped.add(read)
        elif isinstance(read, Refused):
            yield read
        elif read is not None:
            place = (read.instance_type, read.location, read.purchase)
            by_location.setdefault(place, set()).add(read)
    by_place: dict[Place, list[Hosted]] = {}
    for (name, location, purchase), several in by_location.items():
        region = ANYWHERE if ANYWHERE in wanted else location
        if len(several) > 1:
            prices = " and ".join(f"${one.usd_per_hour}" for one in sorted(several, key=_usd))
            why = f"listed at {prices}"
            yield Refused(
                rule="listed-twice", provider=provider, region=location, what=name, why=why
            )
        elif region in wanted:
            by_place.setdefault((name, region, purchase), []).extend(several)
    for place, found in sorted(by_place.items()):
        yield _lowest(provider, place, found, published)


def _lowest(provider: str, place: Place, found: Iterable[Hosted], published: date) -> PriceRow:
    """Return the lowest of the prices of one type and region, with the highest in its note."""
    instance_type, region, purchase = place
    by_price = sorted(found, key=lambda one: (one.usd_per_hour, one.location))
    lowest, highest = by_price[0], by_price[-1].usd_per_hour
    note = f"in {lowest.location}; up to ${highest} elsewhere"
    return PriceRow(
        provider=provider,
        region=region,
        instance_type=instance_type,
        purchase=purchase,
        usd_per_hour=lowest.usd_per_hour,
        price_date=published,
        source="the seller's API, gathered by gpuhunt",
        note=note if highest > lowest.usd_per_hour else None,
    )


def _read(
    item: Any, provider: str, instances: Mapping[str, Instance], memory_bytes: Mapping[str, int]
) -> Hosted | Refused | str | None:
    """Return what a row says; its name if the catalogue has no such type, None for hosts alone."""
    name, purchase = str(item.instance_name), _purchase(item)
    if not item.gpu_count:
        return None

    def refused(rule: str, why: str) -> Refused:
        return Refused(rule=rule, provider=provider, region=item.location, what=name, why=why)

    if item.provider_data.get("pod_counts"):
        return refused(CLUSTER_RULE, "a cluster of several nodes")
    instance = instances.get(_our_type(provider, item, purchase, instances) or "")
    if instance is None:
        return f"{name} ({item.gpu_count} x {item.gpu_name}, {purchase})"
    if instance.accelerators != item.gpu_count:
        return refused(COUNT_RULE, f"{item.gpu_count} accelerators, not {instance.accelerators:g}")
    ours = memory_bytes.get(instance.accelerator)
    theirs = None if item.gpu_memory is None else item.gpu_memory * 1e9
    if ours and theirs and abs(theirs / ours - 1) > MEMORY_TOLERANCE:
        why = f"{item.gpu_memory:g} GB each, and {instance.accelerator} has {ours / 1e9:.0f}"
        return refused(MEMORY_RULE, why)
    usd = decimal_of(str(item.price))
    if usd is None:
        return refused("not-a-number", f"the price is {item.price!r}")
    if usd <= 0:
        return refused("not-positive", f"the price is {usd}")
    return Hosted(
        instance_type=instance.instance_type,
        location=str(item.location),
        purchase=purchase,
        usd_per_hour=usd,
    )


def _usd(one: Hosted) -> Decimal:
    return one.usd_per_hour


def _purchase(item: Any) -> OfferPurchase:
    return "spot" if item.spot else "on-demand"


def _our_type(
    provider: str, item: Any, purchase: OfferPurchase, instances: Mapping[str, Instance]
) -> str | None:
    """Return the catalogue's type of a row: of the same name, else by the table."""
    same = str(item.instance_name).replace(" ", "_")
    for name in (str(item.instance_name), same):
        if name in instances:
            return name
    for row in types_by_seller(provider):
        if (
            row["purchase"] == purchase
            and int(row["accelerators"]) == item.gpu_count
            and fnmatchcase(str(item.instance_name), row["seller_type"])
            and fnmatchcase(str(item.location), row["location"] or "*")
        ):
            return row["instance_type"]
    return None


def types_by_seller(provider: str) -> list[dict[str, str]]:
    """Return the rows of the table that say which of a seller's types is which of ours."""
    return _seller_types().get(provider, [])


@cache
def _seller_types() -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    with (CURATED_DIR / "seller_types.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["provider"], []).append(row)
    return found
