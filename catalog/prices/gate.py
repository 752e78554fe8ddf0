"""Rules that every price passes before it is kept, whichever cloud it is from. Pure.

Each rule has a name, which `gpuplan prices` counts by. A row that a rule refuses is left out, and
what was known before stays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import TypeVar

from ..clouds.interface import PriceRow, Refused
from ..embedded import CURATED_DIR, Catalogue
from ..terms.on_demand import NOT_ON_DEMAND_RULE, sold_otherwise
from ..types import CommitmentRow, EvictionRow, Offer
from ..vocabulary import OfferPurchase

OUTLIER_RULE = "outlier"
LARGEST_CHANGE: Mapping[OfferPurchase, Decimal] = {
    "on-demand": Decimal(2),
    "spot": Decimal(10),
}
"""A price that many times above or below the last one is held back until the user accepts it.

The largest cut of an on-demand price that AWS has announced for accelerators was 45 % in one day
(https://aws.amazon.com/blogs/aws, "Announcing up to 45% price reduction for Amazon EC2 NVIDIA
GPU-accelerated instances", 2025-06-05, recalled), a factor of 1.8. Spot prices move with demand, by
more than that within a week.
"""
FARTHEST_FROM_KIN = Decimal(10)
"""A price with no price before it, so many times the middle price of its accelerator, is held back,
too. Of the 2,700 prices of the snapshot of 2026-11-20 one lies further away: a V100 at a fifteenth.
"""

Row = TypeVar("Row", PriceRow, CommitmentRow)
RowKey = TypeVar("RowKey", bound=Hashable)
Key = tuple[str, str, str, OfferPurchase]
"""(provider, region, instance type, purchase)."""


@dataclass(frozen=True, kw_only=True)
class Passed:
    """What the gate let through, and what it held back."""

    rows: tuple[PriceRow, ...]
    refused: tuple[Refused, ...]


def passed(
    rows: Iterable[PriceRow],
    catalogue: Catalogue,
    *,
    accept_changes: bool = False,
) -> Passed:
    """Return the rows that may be kept.

    Args:
        rows: As the clouds' own rules let them through.
        catalogue: What is known up to now, against which a price may be an outlier.
        accept_changes: Whether the user has looked at the outliers and takes them.
    """
    kept, twice, refused = listed_once(
        rows,
        key_of=lambda row: (row.provider, row.region, row.instance_type, row.purchase),
        never_true=lambda row: _never_true(row, catalogue),
    )
    for key in twice:
        del kept[key]
    refused += _above_on_demand(kept)
    if not accept_changes:
        refused += _outliers(kept, catalogue)
    return Passed(rows=tuple(kept.values()), refused=tuple(refused))


def listed_once(
    rows: Iterable[Row],
    *,
    key_of: Callable[[Row], RowKey],
    never_true: Callable[[Row], tuple[str, str] | None],
) -> tuple[dict[RowKey, Row], set[RowKey], list[Refused]]:
    """Return the first row of each key, the keys with two prices, and what is refused of both.

    Args:
        rows: As the clouds' own rules let them through.
        key_of: What a price is one of.
        never_true: Returns the rule that no such price can pass, and why; None where there is none.
    """
    kept: dict[RowKey, Row] = {}
    twice: set[RowKey] = set()
    refused: list[Refused] = []
    for row in rows:
        key = key_of(row)
        why = never_true(row)
        if why is not None:
            refused.append(refusal(why[0], row, why[1]))
        elif key in kept and kept[key].usd_per_hour != row.usd_per_hour:
            twice.add(key)
            why_twice = f"listed at ${kept[key].usd_per_hour} and at ${row.usd_per_hour}"
            refused.append(refusal("listed-twice", row, why_twice))
        else:
            kept.setdefault(key, row)
    return kept, twice, refused


def why_not_sold(row: PriceRow | CommitmentRow, catalogue: Catalogue) -> tuple[str, str] | None:
    """Return the rule by which no price of such a machine can be true, and why."""
    if row.usd_per_hour <= 0:
        return "not-positive", f"the price is {row.usd_per_hour}"
    instance = catalogue.instances.get((row.provider, row.instance_type))
    if instance is None or instance.is_cpu:
        return "unmapped", "the catalogue does not have this instance type"
    return None


def refusal(rule: str, row: PriceRow | CommitmentRow, why: str) -> Refused:
    """Return what is said of a row that a rule holds back."""
    return Refused(
        rule=rule, provider=row.provider, region=row.region, what=row.instance_type, why=why
    )


def evictions_of(rows: Iterable[EvictionRow]) -> tuple[list[EvictionRow], list[Refused]]:
    """Return one chance of eviction for each place, and the places of which two are stated."""
    kept: dict[tuple[str, str, str], EvictionRow] = {}
    refused: dict[tuple[str, str, str], Refused] = {}
    for row in rows:
        place = (row.provider, row.region, row.instance_type)
        first = kept.setdefault(place, row)
        if (first.hourly_low, first.hourly_high) != (row.hourly_low, row.hourly_high):
            refused[place] = Refused(
                rule="listed-twice",
                provider=row.provider,
                region=row.region,
                what=row.instance_type,
                why="two bands of its eviction rate",
            )
    return [row for place, row in kept.items() if place not in refused], list(refused.values())


def _never_true(row: PriceRow, catalogue: Catalogue) -> tuple[str, str] | None:
    if not row.usd_per_hour.is_finite():
        return "not-a-number", f"the price is {row.usd_per_hour}"
    why = why_not_sold(row, catalogue)
    if why is not None:
        return why
    ways = sold_otherwise(CURATED_DIR).get((row.provider, row.instance_type))
    if ways is not None and row.purchase == "on-demand":
        return NOT_ON_DEMAND_RULE, f"it is sold {ways} alone"
    return None


def _above_on_demand(kept: dict[Key, PriceRow]) -> list[Refused]:
    """Take out spot prices above the on-demand price of the same answer, and return them."""
    found = []
    for key, row in list(kept.items()):
        provider, region, instance_type, purchase = key
        on_demand = kept.get((provider, region, instance_type, "on-demand"))
        if purchase != "spot" or on_demand is None or row.usd_per_hour <= on_demand.usd_per_hour:
            continue
        why = f"spot at ${row.usd_per_hour}, on demand at ${on_demand.usd_per_hour}"
        found.append(refusal("spot-above-on-demand", row, why))
        del kept[key]
    return found


def _outliers(kept: dict[Key, PriceRow], catalogue: Catalogue) -> list[Refused]:
    """Take out prices that are far from what was known, and return them."""
    last = {(one.provider, one.region, one.instance_type): one for one in catalogue.offers}
    kin = middle_prices(catalogue)
    found = []
    for key, row in list(kept.items()):
        before = last.get(key[:3])
        known = None if before is None else before.usd_per_hour(row.purchase)
        if known is not None and before is not None and _is_market(before, row.purchase):
            limit, what = LARGEST_CHANGE[row.purchase], "the last price"
        else:
            instance = catalogue.instances[row.provider, row.instance_type]
            middle = kin.get((instance.accelerator, row.purchase))
            count = Decimal(str(instance.accelerators))
            known = None if middle is None else middle * count
            limit, what = FARTHEST_FROM_KIN, f"other prices of {instance.accelerator}"
        if known is None or 1 / limit <= row.usd_per_hour / known <= limit:
            continue
        ratio = row.usd_per_hour / known
        why = f"${row.usd_per_hour:,.2f} is {ratio:.3g} times {what} (${known:,.2f})"
        found.append(refusal(OUTLIER_RULE, row, why))
        del kept[key]
    return found


def _is_market(offer: Offer, purchase: OfferPurchase) -> bool:
    return purchase == "on-demand" or offer.spot_is_market


def middle_prices(catalogue: Catalogue) -> dict[tuple[str, OfferPurchase], Decimal]:
    """Return the middle price of one accelerator, $/h, over all who are no marketplace."""
    prices: dict[tuple[str, OfferPurchase], list[Decimal]] = {}
    purchases: tuple[OfferPurchase, ...] = ("on-demand", "spot")
    for offer in catalogue.offers:
        for purchase in purchases:
            usd = offer.usd_per_accelerator_hour(purchase)
            if usd is not None and not offer.marketplace and _is_market(offer, purchase):
                prices.setdefault((offer.accelerator, purchase), []).append(usd)
    return {key: median(found) for key, found in prices.items()}
