"""SKUs of Google Cloud's billing catalogue → prices of machine types, or why not. Pure.

A machine has no price of its own: its cores, memory, accelerators and local SSD have, for each
region. The shape of a SKU: https://cloud.google.com/billing/docs/reference/rest/v1/services.skus
(2026-11-23).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Literal, cast

from ..embedded import CURATED_DIR
from ..types import Instance
from ..units import GB, GIB
from ..vocabulary import OfferPurchase
from .interface import PriceRow, Refused

PROVIDER = "gcp"
SOURCE = "Google Cloud Billing catalogue (sum of SKUs)"
HOURS_IN_MONTH = Decimal(730)
"""As Google turns a price a month into one an hour: https://cloud.google.com/compute/disks-image-pricing
(2026-11-23)."""
LOCAL_SSD_GIB = 375
"""Of one partition: https://cloud.google.com/compute/docs/disks/local-ssd (2026-11-23)."""

Part = Literal["core", "ram", "gpu", "local-ssd", "all-in"]
PART_UNITS: dict[Part, tuple[str, ...]] = {
    "core": ("h",),
    "ram": ("GiBy.h",),
    "gpu": ("h",),
    "local-ssd": ("GiBy.mo",),
    "all-in": ("h",),
}
"""The unit a SKU of each part is sold in."""

COMMITMENT_RULE = "gcp-commitment"
"""A price of one or three years; those of flexible commitments are marked as on-demand use."""
DWS_RULE = "gcp-dws"
"""Flex-start (Dynamic Workload Scheduler): cheaper, for at most seven days, when there is room."""
CALENDAR_RULE = "gcp-calendar"
"""Capacity booked ahead; many such SKUs are listed at $0."""
RESERVED_RULE = "gcp-reserved"
OTHER_PRODUCT_RULE = "gcp-other-product"
"""Sole tenants, custom machines and premiums on them."""
AMBIGUOUS_RULE = "gcp-ambiguous-sku"
"""Two SKUs say different prices for the same part in the same region."""
INCOMPLETE_RULE = "gcp-incomplete-sum"
"""A part of the machine has no price there, so its sum would be too low."""
UNIT_RULE = "gcp-unit"

_BY_DESCRIPTION = (
    (re.compile(r"(?i)\bcommitment\b|\bCUD\b"), COMMITMENT_RULE),
    (re.compile(r"\bDWS\b"), DWS_RULE),
    (re.compile(r"(?i)\bcalendar mode\b"), CALENDAR_RULE),
    (re.compile(r"(?i)^reserved\b"), RESERVED_RULE),
    (re.compile(r"(?i)\bsole tenancy\b|\bcustom\b|\bpremium\b"), OTHER_PRODUCT_RULE),
)
_SPOT = re.compile(r"^(?:Spot )?Preemptible | attached to (?:Spot )?Preemptible VMs")
_PLACE = re.compile(r" (?:running )?in [^()]*$")


@dataclass(frozen=True, kw_only=True)
class Sku:
    """One SKU as the billing catalogue lists it."""

    description: str
    usage_type: str
    """OnDemand, Preemptible, Commit1Yr or Commit3Yr."""
    resource_group: str
    regions: tuple[str, ...]
    unit: str
    currency: str
    usd: Decimal | None
    """For one unit; None where it is no number."""
    tier_start: float = 0.0


@dataclass
class SkuPrices:
    """The parts' prices by (description, region, purchase), and what was not taken."""

    usd: dict[tuple[str, str, OfferPurchase], Decimal] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    unmapped: set[str] = field(default_factory=set)
    """Accelerators whose SKU belongs to no machine type that gpuplan knows."""


@cache
def parts_of_series() -> dict[str, dict[Part, tuple[str, ...]]]:
    """Return the descriptions of each part, by series of machine types (`a3-highgpu`)."""
    table: dict[str, dict[Part, tuple[str, ...]]] = {}
    with (CURATED_DIR / "gcp_skus.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            parts = table.setdefault(row["series"], {})
            part = cast(Part, row["part"])
            parts[part] = (*parts.get(part, ()), row["description"])
    return table


def series_of(instance_type: str) -> str:
    """Return the series of a machine type.

    >>> series_of("a3-highgpu-8g"), series_of("g2-standard-96")
    ('a3-highgpu', 'g2-standard')
    """
    return "-".join(instance_type.split("-")[:2])


def read_skus(skus: Iterable[Sku]) -> SkuPrices:
    """Return the prices of the parts of accelerator machines, each for one region and purchase."""
    wanted: dict[str, Part] = {
        name: part
        for parts in parts_of_series().values()
        for part, names in parts.items()
        for name in names
    }
    read = SkuPrices()
    seen: dict[tuple[str, str, OfferPurchase], Decimal] = {}
    ambiguous: set[tuple[str, str, OfferPurchase]] = set()
    for sku in skus:
        base, purchase = _base_of(sku)
        part = wanted.get(base)
        if part is None:
            near: Part | None = None
            for name, one in wanted.items():
                if name in sku.description:
                    near = one
            rule = None if near is None else _rule_against(sku, near)
            if rule is not None:
                read.refused.append(_refused(rule[0], sku, rule[1]))
            elif sku.resource_group == "GPU" and _rule_against(sku, "gpu") is None:
                read.unmapped.add(base)
            continue
        rule = _rule_against(sku, part)
        if rule is not None:
            read.refused.append(_refused(rule[0], sku, rule[1]))
            continue
        assert sku.usd is not None
        for region in sku.regions:
            key = (base, region, purchase)
            if seen.setdefault(key, sku.usd) != sku.usd:
                ambiguous.add(key)
    for key in sorted(ambiguous):
        base, region, purchase = key
        del seen[key]
        why = f"two {purchase} prices for it"
        read.refused.append(
            Refused(rule=AMBIGUOUS_RULE, provider=PROVIDER, region=region, what=base, why=why)
        )
    read.usd = seen
    return read


def machine_prices(
    prices: SkuPrices,
    instances: Iterable[Instance],
    places: Iterable[tuple[str, str]],
    *,
    today: date,
) -> Iterator[PriceRow | Refused]:
    """Yield the sum of the parts of each machine type, in each region that offers it.

    Args:
        prices: Of the parts.
        instances: The machine types.
        places: (region, machine type) where it is offered.
        today: When they were read.
    """
    by_type = {instance.instance_type: instance for instance in instances}
    for region, instance_type in sorted(set(places)):
        instance = by_type.get(instance_type)
        parts = parts_of_series().get(series_of(instance_type))
        if instance is None or parts is None:
            continue
        purchases: tuple[OfferPurchase, ...] = ("on-demand", "spot")
        for purchase in purchases:
            yield from _machine_price(prices, instance, parts, region, purchase, today)


def _machine_price(
    prices: SkuPrices,
    instance: Instance,
    parts: dict[Part, tuple[str, ...]],
    region: str,
    purchase: OfferPurchase,
    today: date,
) -> Iterator[PriceRow | Refused]:
    total, missing, found = Decimal(0), list[str](), 0
    for part, names in parts.items():
        amount = _amount(part, instance)
        if amount == 0:
            continue
        known = [prices.usd[name, region, purchase] for name in names
                 if (name, region, purchase) in prices.usd]  # fmt: skip
        if amount is None or not known or len(set(known)) > 1:
            missing.append(part)
            continue
        found += part in ("gpu", "all-in")
        total += amount * known[0]
    if not found:
        return  # The accelerator is not sold there this way: nothing was said of a price.
    if missing:
        yield Refused(
            rule=INCOMPLETE_RULE,
            provider=PROVIDER,
            region=region,
            what=instance.instance_type,
            why=f"no {purchase} price of its {' and '.join(missing)}",
        )
        return
    yield PriceRow(
        provider=PROVIDER,
        region=region,
        instance_type=instance.instance_type,
        purchase=purchase,
        usd_per_hour=total.quantize(Decimal("0.000001")),
        price_date=today,
        source=SOURCE,
    )


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


def _base_of(sku: Sku) -> tuple[str, OfferPurchase]:
    """Return what a SKU is of, without its place, and how it is bought.

    Google marks some spot SKUs as on-demand use, so that the description decides, too.
    """
    base, spot = _SPOT.subn("", sku.description)
    purchase: OfferPurchase = "spot" if spot or sku.usage_type == "Preemptible" else "on-demand"
    return _PLACE.sub("", base).strip(), purchase


def _rule_against(sku: Sku, part: Part) -> tuple[str, str] | None:
    if sku.usage_type not in ("OnDemand", "Preemptible"):
        return COMMITMENT_RULE, f"its use is {sku.usage_type}"
    for pattern, rule in _BY_DESCRIPTION:
        if pattern.search(sku.description):
            return rule, sku.description
    if sku.unit not in PART_UNITS[part]:
        return UNIT_RULE, f"the unit is {sku.unit!r}"
    if sku.currency != "USD":
        return "currency", f"the currency is {sku.currency}"
    if sku.usd is None:
        return "not-a-number", "the price is no number"
    if sku.usd <= 0:
        return "not-positive", f"the price is {sku.usd}"
    return None


def _refused(rule: str, sku: Sku, why: str) -> Refused:
    region = sku.regions[0] if len(sku.regions) == 1 else None
    return Refused(rule=rule, provider=PROVIDER, region=region, what=sku.description, why=why)
