"""Prices of the parts of Google Cloud's machines → prices of machine types, or why not. Pure.

A machine has no price of its own: its cores, memory, accelerators and local SSD have, for each
region.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal

from ...types import CommitmentRow, Instance
from ...units import GB, GIB
from ...vocabulary import OfferPurchase
from ..interface import PriceRow, Refused
from .skus import PROVIDER, Part, SkuPrices, Way, parts_of_series, series_of

SOURCE = "Google Cloud Billing catalogue (sum of SKUs)"
HOURS_IN_MONTH = Decimal(730)
"""As Google turns a price a month into one an hour: https://cloud.google.com/compute/disks-image-pricing
(2026-11-23)."""
LOCAL_SSD_GIB = 375
"""Of one partition: https://cloud.google.com/compute/docs/disks/local-ssd (2026-11-23)."""
COMMITTED_SOURCE = "Google Cloud Billing catalogue (sum of SKUs of a commitment)"
INCOMPLETE_RULE = "gcp-incomplete-sum"
"""A part of the machine has no price there, so its sum would be too low."""
PURCHASES: tuple[OfferPurchase, ...] = ("on-demand", "spot")
TERMS: tuple[tuple[Way, int], ...] = (("1 year", 1), ("3 years", 3))
MICRO_USD = Decimal("0.000001")


def machine_prices(
    prices: SkuPrices,
    instances: Iterable[Instance],
    places: Iterable[tuple[str, str]],
    *,
    today: date,
) -> Iterator[PriceRow | CommitmentRow | Refused]:
    """Yield the sums of the parts of each machine type, in each region that offers it.

    Args:
        prices: Of the parts.
        instances: The machine types.
        places: (region, machine type) where it is offered.
        today: When they were read.
    """
    by_type = {instance.instance_type: instance for instance in instances}
    for region, instance_type in sorted(set(places)):
        instance, series = by_type.get(instance_type), series_of(instance_type)
        parts = parts_of_series().get(series)
        if instance is None or parts is None:
            continue
        given = {
            "provider": PROVIDER,
            "region": region,
            "instance_type": instance_type,
            "price_date": today,
        }
        for purchase in PURCHASES:
            usd = _sum(prices, instance, parts, region, purchase)
            if isinstance(usd, Refused):
                yield usd
            elif usd is not None:
                yield PriceRow(purchase=purchase, usd_per_hour=usd, source=SOURCE, **given)
        names = parts_of_series(committed=True).get(series, {})
        for way, years in TERMS:
            committed: dict[Part, tuple[str, ...]] = {one: names.get(one, ()) for one in parts}
            usd = _sum(prices, instance, committed, region, way)
            if isinstance(usd, Refused):
                yield usd
            elif usd is not None:
                yield CommitmentRow(
                    term_years=years, usd_per_hour=usd, source=COMMITTED_SOURCE, **given
                )


def calendar_usd_per_hour(prices: SkuPrices, instance: Instance, region: str) -> Decimal | None:
    """Return the price of a machine in Calendar mode; None where a part has none."""
    parts = parts_of_series().get(series_of(instance.instance_type), {})
    usd = _sum(prices, instance, parts, region, "calendar")
    return None if isinstance(usd, Refused) else usd


def _sum(
    prices: SkuPrices,
    instance: Instance,
    parts: Mapping[Part, tuple[str, ...]],
    region: str,
    way: Way,
) -> Decimal | Refused | None:
    """Return the price of a machine, why it has none, or None where none is stated."""
    total, missing, found = Decimal(0), list[str](), 0
    for part, names in parts.items():
        amount = _amount(part, instance)
        if amount == 0:
            continue
        known = {
            prices.usd[name, region, way] for name in names if (name, region, way) in prices.usd
        }
        if amount is None or len(known) != 1:
            missing.append(part)
            continue
        found += part in ("gpu", "all-in")
        total += amount * known.pop()
    if not found:
        return None  # The accelerator is not sold there this way: nothing was said of a price.
    if missing:
        why = f"no {way} price of its {' and '.join(missing)}"
        return Refused(
            rule=INCOMPLETE_RULE,
            provider=PROVIDER,
            region=region,
            what=instance.instance_type,
            why=why,
        )
    return total.quantize(MICRO_USD)


def _amount(part: Part, instance: Instance) -> Decimal | None:
    """Return how much of a part the machine has, in the unit it is sold in; None: not known."""
    if part in ("gpu", "all-in"):
        return Decimal(str(instance.accelerators))
    if part == "core":
        return None if instance.vcpus is None else Decimal(str(instance.vcpus))
    if part == "ram":
        size = instance.memory_bytes
        return None if size is None else Decimal(size) / GIB
    partitions = round((instance.local_nvme_bytes or 0) / GB / LOCAL_SSD_GIB)
    return Decimal(partitions * LOCAL_SSD_GIB) / HOURS_IN_MONTH
