"""Offers of single hosts on a marketplace → one price for each type, or a named refusal. Pure.

On a marketplace each row is one machine at the price that its owner asks now. The cheapest is gone
as soon as somebody takes it, so that a type has the middle of its offers, and only where there are
some. The shape of a row is gpuhunt's `CatalogItem`, its fields those of Vast.ai's search:
https://docs.vast.ai/api-reference/search/search-offers (recalled, 2026-11-25).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from statistics import median
from typing import Any

from ...text.money_cells import decimal_of
from ...types import Instance
from ..interface import PriceRow, Refused
from .hosted_rows import ANYWHERE, MEMORY_RULE, MEMORY_TOLERANCE, types_by_seller

DYNAMIC_RULE = "marketplace-bid"
"""The least bid for a machine that may be taken away: it moves with what others bid."""
FEW_RULE = "marketplace-few-offers"
"""So few machines that the middle of their prices says nothing of the next one."""
FORM_RULE = "marketplace-form"
"""The list says A100 or H100, and not whether on PCIe or SXM."""
LEAST_OFFERS = 3
WITHOUT_FORM = frozenset(("A100", "H100", "V100"))


def read_marketplace(
    items: Iterable[Any],
    provider: str,
    instances: Mapping[str, Instance],
    memory_bytes: Mapping[str, int],
    *,
    regions: Iterable[str],
    today: date,
    unmapped: set[str],
) -> Iterator[PriceRow | Refused]:
    """Yield the middle price of each type with one accelerator, or why offers are not taken.

    Args:
        items: Offers of gpuhunt, each one machine.
        provider: Whose they are, by our name.
        instances: Our types of it.
        memory_bytes: Of our accelerators, by name.
        regions: That are asked for; prices are of all places together.
        today: When they were read.
        unmapped: Takes accelerators that the catalogue has no type of.
    """
    asks: dict[str, list[Decimal]] = {}
    for item in items:
        read = _read(item, provider, instances, memory_bytes)
        if isinstance(read, Refused):
            yield read
        elif isinstance(read, str):
            unmapped.add(read)
        elif read is not None:
            asks.setdefault(read[0], []).append(read[1])
    for name, found in sorted(asks.items()):
        if len(found) < LEAST_OFFERS:
            why = f"{len(found)} offers, and {LEAST_OFFERS} are the least"
            yield Refused(rule=FEW_RULE, provider=provider, region=ANYWHERE, what=name, why=why)
        elif ANYWHERE in regions:
            yield PriceRow(
                provider=provider,
                region=ANYWHERE,
                instance_type=name,
                purchase="on-demand",
                usd_per_hour=median(found),
                price_date=today,
                source="the marketplace's list of offers, read by gpuhunt",
                note=f"the middle of {len(found)} offers, ${min(found)} to ${max(found)}",
            )


def _read(
    item: Any, provider: str, instances: Mapping[str, Instance], memory_bytes: Mapping[str, int]
) -> tuple[str, Decimal] | Refused | str | None:
    """Return a type and its price; an accelerator without a type; None for other sizes."""
    if item.gpu_count != 1:
        return None

    def refused(rule: str, why: str) -> Refused:
        what = f"{item.gpu_name} ({item.instance_name})"
        return Refused(rule=rule, provider=provider, region=item.location, what=what, why=why)

    if item.spot:
        return refused(DYNAMIC_RULE, f"a bid of ${item.price}")
    if item.gpu_name in WITHOUT_FORM:
        return refused(FORM_RULE, "on PCIe or SXM, which the list does not say")
    names = {row["seller_type"]: row["instance_type"] for row in types_by_seller(provider)}
    instance = instances.get(names.get(item.gpu_name, ""))
    if instance is None:
        return f"1 x {item.gpu_name}"
    ours = memory_bytes.get(instance.accelerator)
    theirs = None if item.gpu_memory is None else item.gpu_memory * 1e9
    if ours and theirs and abs(theirs / ours - 1) > MEMORY_TOLERANCE:
        return refused(MEMORY_RULE, f"{item.gpu_memory:g} GB, ours has {ours / 1e9:.0f}")
    usd = decimal_of(str(item.price))
    if usd is None:
        return refused("not-a-number", f"the price is {item.price!r}")
    if usd <= 0:
        return refused("not-positive", f"the price is {usd}")
    return instance.instance_type, usd
