"""SKUs of Google Cloud's billing catalogue → prices of the parts of machines, or why not. Pure.

The shape of a SKU: https://cloud.google.com/billing/docs/reference/rest/v1/services.skus
(2026-11-23).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Literal, cast

from ...embedded import CURATED_DIR
from ..interface import Refused

PROVIDER = "gcp"

Part = Literal["core", "ram", "gpu", "local-ssd", "all-in"]
Way = Literal["on-demand", "spot", "1 year", "3 years", "calendar"]
"""How a part is bought."""
COMMITTED_USE: dict[Way, str] = {"1 year": "Commit1Yr", "3 years": "Commit3Yr"}
"""What the usage type of a SKU for a term is."""
PART_UNITS: dict[Part, tuple[str, ...]] = {
    "core": ("h",),
    "ram": ("GiBy.h",),
    "gpu": ("h",),
    "local-ssd": ("GiBy.mo",),
    "all-in": ("h",),
}
"""The unit a SKU of each part is sold in."""

COMMITMENT_RULE = "gcp-commitment"
"""A commitment that is none of the terms taken; flexible ones are marked as on-demand use."""
DWS_RULE = "gcp-dws"
"""Flex-start (Dynamic Workload Scheduler): cheaper, for at most seven days, when there is room."""
CALENDAR_RULE = "gcp-calendar"
"""Capacity booked ahead under a name that is not known, or at $0, as many such SKUs are listed."""
RESERVED_RULE = "gcp-reserved"
OTHER_PRODUCT_RULE = "gcp-other-product"
"""Sole tenants, custom machines and premiums on them."""
AMBIGUOUS_RULE = "gcp-ambiguous-sku"
"""Two SKUs say different prices for the same part in the same region."""
UNIT_RULE = "gcp-unit"

_BY_DESCRIPTION = (
    (re.compile(r"(?i)\bcommitment\b|\bCUD\b"), COMMITMENT_RULE),
    (re.compile(r"\bDWS\b"), DWS_RULE),
    (re.compile(r"(?i)\bcalendar mode\b"), CALENDAR_RULE),
    (re.compile(r"(?i)^reserved\b"), RESERVED_RULE),
    (re.compile(r"(?i)\bsole tenancy\b|\bcustom\b|\bpremium\b"), OTHER_PRODUCT_RULE),
)
_SPOT = re.compile(r"^(?:Spot )?Preemptible | attached to (?:Spot )?Preemptible VMs")
_PLACE = re.compile(r"(?i) (?:running )?in [^()]*$")
_COMMITTED = re.compile(r"^Commitment v1: (.+) for ([13]) Years?$")
_CALENDAR = re.compile(r"^Reserved (.+) in Calendar Mode$")
_TERMS: dict[str, Way] = {"1": "1 year", "3": "3 years"}
SOLD_BY_ITSELF = ("GPU", "TPU")
"""Groups of SKUs that are accelerators."""


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

    usd: dict[tuple[str, str, Way], Decimal] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    unmapped: set[str] = field(default_factory=set)
    """Accelerators whose SKU belongs to no machine type that gpuplan knows."""


@cache
def parts_of_series(*, committed: bool = False) -> dict[str, dict[Part, tuple[str, ...]]]:
    """Return the descriptions of each part, by series of machine types (`a3-highgpu`).

    Args:
        committed: Those of SKUs for a term, as far as they are known.
    """
    column = "committed" if committed else "description"
    table: dict[str, dict[Part, tuple[str, ...]]] = {}
    with (CURATED_DIR / "gcp_skus.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row[column]:
                parts = table.setdefault(row["series"], {})
                part = cast(Part, row["part"])
                parts[part] = (*parts.get(part, ()), row[column])
    return table


def series_of(instance_type: str) -> str:
    """Return the series of a machine type.

    >>> series_of("a3-highgpu-8g"), series_of("g2-standard-96")
    ('a3-highgpu', 'g2-standard')
    """
    return "-".join(instance_type.split("-")[:2])


def read_skus(skus: Iterable[Sku]) -> SkuPrices:
    """Return the prices of the parts of accelerator machines, each for one region and way."""
    wanted, committed = _names(committed=False), _names(committed=True)
    read = SkuPrices()
    ambiguous: set[tuple[str, str, Way]] = set()
    for sku in skus:
        base, way = _base_of(sku)
        part = (committed if way in COMMITTED_USE else wanted).get(base)
        if part is None:
            _not_taken(sku, base, wanted, read)
            continue
        rule = _rule_against(sku, part, way)
        if rule is not None:
            read.refused.append(_refused(rule[0], sku, rule[1]))
            continue
        assert sku.usd is not None
        for region in sku.regions:
            key = (base, region, way)
            if read.usd.setdefault(key, sku.usd) != sku.usd:
                ambiguous.add(key)
    for key in sorted(ambiguous):
        base, region, way = key
        del read.usd[key]
        why = f"two {way} prices for it"
        read.refused.append(
            Refused(rule=AMBIGUOUS_RULE, provider=PROVIDER, region=region, what=base, why=why)
        )
    return read


def _names(*, committed: bool) -> dict[str, Part]:
    return {
        name: part
        for parts in parts_of_series(committed=committed).values()
        for part, names in parts.items()
        for name in names
    }


def _not_taken(sku: Sku, base: str, wanted: dict[str, Part], read: SkuPrices) -> None:
    """Count a SKU of no known name: one that is near a known one by the rule against it."""
    near: Part | None = None
    for name, one in wanted.items():
        if name in sku.description:
            near = one
    rule = None if near is None else _rule_against(sku, near, "on-demand")
    if rule is not None:
        read.refused.append(_refused(rule[0], sku, rule[1]))
    elif sku.resource_group in SOLD_BY_ITSELF and _rule_against(sku, "gpu", "on-demand") is None:
        read.unmapped.add(base)


def _base_of(sku: Sku) -> tuple[str, Way]:
    """Return what a SKU is of, without its place, and how it is bought.

    Google marks some spot SKUs as on-demand use, so that the description decides, too.
    """
    term = _COMMITTED.match(sku.description)
    if term is not None:
        return _PLACE.sub("", term[1]).strip(), _TERMS[term[2]]
    booked = _CALENDAR.match(sku.description)
    if booked is not None:
        return _PLACE.sub("", booked[1]).strip(), "calendar"
    base, spot = _SPOT.subn("", sku.description)
    way: Way = "spot" if spot or sku.usage_type == "Preemptible" else "on-demand"
    return _PLACE.sub("", base).strip(), way


def _rule_against(sku: Sku, part: Part, way: Way) -> tuple[str, str] | None:
    use = COMMITTED_USE.get(way)
    if sku.usage_type not in (("OnDemand", "Preemptible") if use is None else (use,)):
        return COMMITMENT_RULE, f"its use is {sku.usage_type}"
    named = use is not None or way == "calendar"
    for pattern, rule in () if named else _BY_DESCRIPTION:
        if pattern.search(sku.description):
            return rule, sku.description
    if sku.unit not in PART_UNITS[part]:
        return UNIT_RULE, f"the unit is {sku.unit!r}"
    if sku.currency != "USD":
        return "currency", f"the currency is {sku.currency}"
    if sku.usd is None:
        return "not-a-number", "the price is no number"
    if sku.usd == 0 and way == "calendar":
        return CALENDAR_RULE, "listed at $0"
    if sku.usd <= 0:
        return "not-positive", f"the price is {sku.usd}"
    return None


def _refused(rule: str, sku: Sku, why: str) -> Refused:
    region = sku.regions[0] if len(sku.regions) == 1 else None
    return Refused(rule=rule, provider=PROVIDER, region=region, what=sku.description, why=why)
