"""A dated snapshot of the user's own: its rows, and how they go over those of the package. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType

from ..clouds.interface import PriceRow, Prices, Refused, Unanswered
from ..embedded import Catalogue
from ..frozen import FrozenModel
from ..listing.sources import PriceSource
from ..terms.commitments import by_place
from ..types import CommitmentRow, EvictionRow, Instance, Offer

SCHEMA_VERSION = 1
MOST_REFUSED = 200
"""Refused rows that a snapshot tells one by one; all of them are counted."""


class ProviderPrices(FrozenModel):
    """What came of asking one provider, and when what is kept of it was last asked for."""

    provider: str
    asked_at: datetime
    """When it was last asked, answered or not."""
    prices_at: datetime | None
    """When it last answered; None: never, so that the package's own prices are used."""
    is_kept: bool
    """Whether it did not answer this time, so that its rows are older ones."""
    why: str | None = None
    """Why it did not answer."""
    rows: int = 0
    """Prices of it in this snapshot."""
    commitments: int = 0
    """Prices of it for which every hour of some years is paid."""
    evictions: int = 0
    """Types and regions of it whose chance of eviction per hour is known."""
    refused: dict[str, int] = {}
    """Rows that were not taken, counted by rule."""
    examples: tuple[Refused, ...] = ()
    """The first of them."""
    unmapped: tuple[str, ...] = ()
    """Its instance types or SKUs that the catalogue does not have."""
    unanswered: tuple[Unanswered, ...] = ()


class PriceSnapshot(FrozenModel):
    """All prices that the user's refreshes have gathered, as of one of them."""

    schema_version: int = SCHEMA_VERSION
    gpuplan_version: str
    made_at: datetime
    providers: tuple[ProviderPrices, ...]
    offers: tuple[Offer, ...]
    """Each with its own date: a row of an earlier refresh keeps that of the earlier one."""
    commitments: tuple[CommitmentRow, ...] = ()
    """Prices for which every hour of some years is paid, each with its own date."""
    evictions: tuple[EvictionRow, ...] = ()
    """Chances that spot machines are taken away within an hour, each with its own date."""
    instances: tuple[Instance, ...] = ()
    """Instance types that the user described (sku_map.yaml), as far as there are prices of them."""

    def of(self, provider: str) -> ProviderPrices | None:
        """Return what came of asking one provider; None if it never was."""
        return next((one for one in self.providers if one.provider == provider), None)


class SnapshotState(FrozenModel):
    """What is printed of a snapshot: how it came about; its prices are those of `offers`."""

    schema_version: str = "1.0"
    gpuplan_version: str
    made_at: datetime
    offers: int
    """Offers in it, of all providers."""
    providers: tuple[ProviderPrices, ...]


def state_of(snapshot: PriceSnapshot) -> SnapshotState:
    """Return what is printed of a snapshot."""
    return SnapshotState(
        gpuplan_version=snapshot.gpuplan_version,
        made_at=snapshot.made_at,
        offers=len(snapshot.offers),
        providers=snapshot.providers,
    )


def with_snapshot(catalogue: Catalogue, snapshot: PriceSnapshot) -> Catalogue:
    """Return the catalogue with the snapshot's prices in the place of older ones.

    An instance type or a region that the snapshot does not have keeps the package's row and date.
    """
    mine = {_key(offer): offer for offer in snapshot.offers}
    known = {_key(offer) for offer in catalogue.offers}
    offers = tuple(mine.get(_key(offer), offer) for offer in catalogue.offers)
    new = tuple(offer for key, offer in mine.items() if key not in known)
    described = {(one.provider, one.instance_type): one for one in snapshot.instances}
    made_on = snapshot.made_at.astimezone(UTC).date()
    return replace(
        catalogue,
        offers=offers + new,
        instances=MappingProxyType({**described, **catalogue.instances}),
        commitments=by_place(snapshot.commitments),
        evictions=MappingProxyType({_key(one): one for one in snapshot.evictions}),
        snapshot_date=max(catalogue.snapshot_date, made_on),
        price_source=source_of(snapshot),
    )


def source_of(snapshot: PriceSnapshot) -> PriceSource:
    """Return what an answer says of where its prices are from."""
    return PriceSource(
        kind="refreshed",
        made_at=snapshot.made_at,
        fresh=tuple(one.provider for one in snapshot.providers if not one.is_kept and one.rows),
        kept={
            one.provider: one.prices_at.astimezone(UTC).date()
            for one in snapshot.providers
            if one.is_kept and one.prices_at is not None
        },
    )


def merged(catalogue: Catalogue, rows: Iterable[PriceRow]) -> tuple[Offer, ...]:
    """Return the offers that rows make of the catalogue's: a price that is new replaces the old.

    A kind of price that no row gives stays as it was, with its source and date named, unless it
    contradicts the new one.
    """
    by_place: dict[tuple[str, str, str], dict[str, PriceRow]] = {}
    for row in rows:
        place = (row.provider, row.region, row.instance_type)
        by_place.setdefault(place, {})[row.purchase] = row
    old = {_key(offer): offer for offer in catalogue.offers}
    return tuple(
        _offer(catalogue, place, found, old.get(place)) for place, found in by_place.items()
    )


def _offer(
    catalogue: Catalogue,
    place: tuple[str, str, str],
    found: dict[str, PriceRow],
    old: Offer | None,
) -> Offer:
    provider, region, instance_type = place
    instance = catalogue.instances[provider, instance_type]
    seller = catalogue.providers[provider]
    on_demand, spot = found.get("on-demand"), found.get("spot")
    on_demand_usd = on_demand.usd_per_hour if on_demand else old and old.on_demand_usd_per_hour
    spot_usd = spot.usd_per_hour if spot else old and old.spot_usd_per_hour
    is_market = spot is not None or (old is not None and old.spot_is_market)
    sources = [row.source for row in (on_demand, spot) if row is not None]
    notes = [row.note for row in (on_demand, spot) if row is not None and row.note]
    if old is not None and (on_demand is None) != (spot is None):
        kept = "on-demand price" if on_demand is None else "spot price"
        kept_usd = on_demand_usd if on_demand is None else spot_usd
        if kept_usd is not None and _contradicts(on_demand_usd, spot_usd):
            notes.append(f"the older {kept} ${kept_usd} of {old.price_date} contradicts it")
            on_demand_usd = None if on_demand is None else on_demand_usd
            spot_usd = None if spot is None else spot_usd
        elif kept_usd is not None:
            notes.append(f"{kept} of {old.price_date}: {old.source}")
    if spot_usd is None or (spot_usd == on_demand_usd):
        is_market = False
    return Offer(
        provider=provider,
        region=region,
        instance_type=instance_type,
        accelerator=instance.accelerator,
        accelerators=instance.accelerators,
        on_demand_usd_per_hour=on_demand_usd,
        spot_usd_per_hour=spot_usd,
        spot_is_market=is_market,
        price_basis="refreshed",
        price_date=max(row.price_date for row in found.values()),
        marketplace=seller.marketplace,
        skypilot_cloud=seller.skypilot_cloud,
        source=" + ".join(sources),
        note="; ".join(notes) or None,
        price_date_precision="day",
    )


def _contradicts(on_demand: Decimal | None, spot: Decimal | None) -> bool:
    return on_demand is not None and spot is not None and spot > on_demand


def _key(offer: Offer | EvictionRow) -> tuple[str, str, str]:
    return offer.provider, offer.region, offer.instance_type


def answered(
    provider: str,
    prices: Prices,
    refused: Iterable[Refused],
    *,
    asked_at: datetime,
    rows: int,
    commitments: int = 0,
    evictions: int = 0,
) -> ProviderPrices:
    """Return what is kept of a provider that answered."""
    # What the gate held back first: that is what the user may have to decide on.
    all_refused = [*refused, *prices.refused]
    counts: dict[str, int] = {}
    for one in all_refused:
        counts[one.rule] = counts.get(one.rule, 0) + 1
    return ProviderPrices(
        provider=provider,
        asked_at=asked_at,
        prices_at=asked_at,
        is_kept=False,
        rows=rows,
        commitments=commitments,
        evictions=evictions,
        refused=dict(sorted(counts.items())),
        examples=tuple(all_refused[:MOST_REFUSED]),
        unmapped=prices.unmapped,
        unanswered=prices.unanswered,
    )
