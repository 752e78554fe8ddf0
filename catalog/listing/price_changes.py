"""What `gpuplan prices diff` and `history` answer: prices of two or more snapshots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Literal

from ..frozen import FrozenModel, Usd
from ..types import Offer
from ..vocabulary import OfferPurchase
from .query import AcceleratorRequest

SCHEMA_VERSION = "1.0"
PURCHASES: tuple[OfferPurchase, ...] = ("on-demand", "spot")
Change = Literal["up", "down", "new", "gone"]


class PriceChange(FrozenModel):
    """One price that is not what it was."""

    provider: str
    region: str
    instance_type: str
    accelerator: str
    purchase: OfferPurchase
    change: Change
    before_usd_per_hour: Usd | None
    after_usd_per_hour: Usd | None
    before_date: date | None
    after_date: date | None

    @property
    def ratio(self) -> float | None:
        """The price now over the price before; None where one of them is not known."""
        if self.before_usd_per_hour is None or self.after_usd_per_hour is None:
            return None
        return float(self.after_usd_per_hour / self.before_usd_per_hour)


class PriceDifference(FrozenModel):
    """What changed from one snapshot to another, the largest changes first."""

    schema_version: str = SCHEMA_VERSION
    before: str
    """Which snapshot: the package's, or when it was made."""
    after: str
    unchanged: int
    changes: tuple[PriceChange, ...]


class PricePoint(FrozenModel):
    """The lowest prices of one provider in one snapshot, for one instance."""

    made_at: datetime | None
    """None: the package's own snapshot."""
    day: date
    """Of the price."""
    provider: str
    accelerator: str
    accelerators: float
    on_demand_usd_per_hour: Usd | None
    spot_usd_per_hour: Usd | None
    on_demand_region: str | None
    spot_region: str | None


class PriceHistory(FrozenModel):
    """Lowest prices over time, by provider."""

    schema_version: str = SCHEMA_VERSION
    accelerator: str
    """As it was asked for."""
    points: tuple[PricePoint, ...]


def difference(
    before: Iterable[Offer], after: Iterable[Offer], *, names: tuple[str, str]
) -> PriceDifference:
    """Return what changed between the offers of two snapshots.

    Args:
        before: Of the older one.
        after: Of the newer one.
        names: What the two are called.
    """
    old, new = _prices(before), _prices(after)
    changes: list[PriceChange] = []
    unchanged = 0
    for key in old.keys() | new.keys():
        was, now = old.get(key), new.get(key)
        was_usd = None if was is None else was.usd_per_hour(key[3])
        now_usd = None if now is None else now.usd_per_hour(key[3])
        if was_usd == now_usd:
            unchanged += 1
            continue
        offer = now or was
        assert offer is not None
        changes.append(
            PriceChange(
                provider=offer.provider,
                region=offer.region,
                instance_type=offer.instance_type,
                accelerator=offer.accelerator,
                purchase=key[3],
                change=_change(was_usd, now_usd),
                before_usd_per_hour=was_usd,
                after_usd_per_hour=now_usd,
                before_date=was.price_date if was else None,
                after_date=now.price_date if now else None,
            )
        )
    changes.sort(key=_by_size)
    return PriceDifference(
        before=names[0], after=names[1], unchanged=unchanged, changes=tuple(changes)
    )


def history(
    snapshots: Iterable[tuple[datetime | None, Iterable[Offer]]],
    asked: str,
    wanted: AcceleratorRequest,
    *,
    providers: frozenset[str] = frozenset(),
) -> PriceHistory:
    """Return the lowest prices of each provider in each snapshot, the oldest first.

    Args:
        snapshots: When each was made (None: the package's own), and its offers.
        asked: The accelerators, as the user named them.
        wanted: The same, understood.
        providers: Only these; none: all that are no marketplace.
    """
    points: list[PricePoint] = []
    for made_at, offers in snapshots:
        groups: dict[tuple[str, str, float], list[Offer]] = {}
        for offer in offers:
            is_wanted = offer.provider in providers if providers else not offer.marketplace
            if is_wanted and wanted.accepts(offer):
                key = (offer.provider, offer.accelerator, offer.accelerators)
                groups.setdefault(key, []).append(offer)
        points += [
            point
            for key, found in sorted(groups.items())
            if (point := _point(made_at, key, found)) is not None
        ]
    return PriceHistory(accelerator=asked, points=tuple(points))


def _point(
    made_at: datetime | None, key: tuple[str, str, float], offers: Iterable[Offer]
) -> PricePoint | None:
    best: dict[OfferPurchase, tuple[Decimal, Offer]] = {}
    for offer in offers:
        prices = {
            "on-demand": offer.on_demand_usd_per_hour,
            "spot": offer.market_spot_usd_per_hour,
        }
        for purchase in PURCHASES:
            usd = prices[purchase]
            if usd is not None and (purchase not in best or usd < best[purchase][0]):
                best[purchase] = (usd, offer)
    if not best:
        return None
    days = [offer.price_date for _, offer in best.values() if offer.price_date is not None]
    if not days:
        return None
    provider, accelerator, count = key
    on_demand, spot = best.get("on-demand"), best.get("spot")
    return PricePoint(
        made_at=made_at,
        day=max(days),
        provider=provider,
        accelerator=accelerator,
        accelerators=count,
        on_demand_usd_per_hour=on_demand[0] if on_demand else None,
        spot_usd_per_hour=spot[0] if spot else None,
        on_demand_region=on_demand[1].region if on_demand else None,
        spot_region=spot[1].region if spot else None,
    )


Key = tuple[str, str, str, OfferPurchase]


def _prices(offers: Iterable[Offer]) -> Mapping[Key, Offer]:
    """Return the offers by each kind of price that they have."""
    return {
        (offer.provider, offer.region, offer.instance_type, purchase): offer
        for offer in offers
        for purchase in PURCHASES
        if offer.usd_per_hour(purchase) is not None
    }


def _change(before: Decimal | None, after: Decimal | None) -> Change:
    if before is None:
        return "new"
    if after is None:
        return "gone"
    return "up" if after > before else "down"


def _by_size(one: PriceChange) -> tuple[float, str, str, str, str]:
    """Return what sorts the largest relative changes first, new and gone ones last."""
    ratio = one.ratio
    size = 0.0 if ratio is None else max(ratio, 1 / ratio)
    return -size, one.provider, one.instance_type, one.region, one.purchase
