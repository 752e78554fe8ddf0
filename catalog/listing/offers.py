"""What `gpuplan offers` answers: typed lines, cheapest first, and what is left out. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import PlainSerializer

from ..embedded import Catalogue
from ..names import seller_name
from ..spot import SpotStatus, spot_status
from ..types import CatalogueRow, Offer
from ..vocabulary import OfferPurchase
from .nearby import wishes, with_fewer_wishes, without_numbers
from .ownership import break_even_month
from .query import OfferFilter, select_offers

SCHEMA_VERSION = "1.0"
Usd = Annotated[Decimal, PlainSerializer(float, return_type=float, when_used="json")]
OfferOrder = Literal["price", "price-per-accelerator"]


class BreakEven(CatalogueRow):
    """When bought hardware has paid off against renting the same accelerators."""

    month: int | None
    """First month in which buying has cost no more; None: not within its lifetime."""
    against: str
    rental_usd_per_hour: Usd


class OfferLine(CatalogueRow):
    """One offer with what the catalogue knows of its region and instance."""

    provider: str
    region: str
    jurisdiction: str | None
    instance_type: str
    seller_name: str | None = None
    """What the seller's own pages call it; None: it is rented by accelerator."""
    accelerator: str
    accelerators_per_node: float
    on_demand_usd_per_hour: Usd | None
    spot_usd_per_hour: Usd | None
    spot_is_market: bool
    spot_status: SpotStatus | None
    """Whether the market's price is known, or the type is sold so; None without an instance row."""
    on_demand_usd_per_accelerator_hour: Usd | None
    spot_usd_per_accelerator_hour: Usd | None
    price_basis: str
    price_date: date | None
    price_date_precision: str | None
    marketplace: bool
    launchable: bool
    has_spec: bool
    can_cluster: bool
    intra_link: str | None
    intra_link_bytes_per_s: float | None
    inter_link: str | None
    inter_link_bytes_per_s: float | None
    vcpus: float | None
    memory_bytes: int | None
    break_even: BreakEven | None
    licence: str | None
    source: str
    note: str | None


class NearbyOffers(CatalogueRow):
    """What would match if some of the options had not been given."""

    without: tuple[str, ...]
    """Options to leave out, such as "region"."""
    matched: int
    cheapest: OfferLine
    """The first of them, in the order asked for."""


class OtherNumbers(CatalogueRow):
    """In which numbers per instance accelerators are sold, where nobody sells the one asked for."""

    of: str
    """The accelerators, as `asked` says them."""
    per_instance: tuple[float, ...]
    """Accelerators of one instance, ascending."""
    cheapest: OfferLine
    """The first of these offers, in the order asked for."""


class OfferList(CatalogueRow):
    """The offers that match, cheapest first, and how many are not shown and why."""

    schema_version: str = SCHEMA_VERSION
    snapshot_date: date
    matched: int
    unpriced: int
    """Number of matched offers without a price; they come last."""
    oldest_price: date | None
    newest_price: date | None
    """Dates of the prices among the lines shown."""
    left_out_marketplaces: int
    left_out_slices: int
    offers: tuple[OfferLine, ...]
    asked: tuple[str, ...] = ()
    """What was asked for, one phrase for each option."""
    nearby: tuple[NearbyOffers, ...] = ()
    """Where nothing matches: what does with as few of the options dropped as possible."""
    other_numbers: OtherNumbers | None = None
    """Where nothing matches for the number of accelerators in one instance: what is sold."""


class BestPrice(CatalogueRow):
    """The lowest price of one accelerator, and who asks it."""

    usd_per_accelerator_hour: Usd
    provider: str
    region: str
    instance_type: str
    price_date: date | None
    is_host_apart: bool = False
    """Whether vCPUs and memory are billed beside it."""


@dataclass(frozen=True, kw_only=True)
class OfferView:
    """How a list of offers is to be cut and sorted."""

    order: OfferOrder = "price-per-accelerator"
    purchase: OfferPurchase = "on-demand"
    everything: bool = False
    """Also marketplaces and slices of a device, which else need to be named."""
    top: int | None = None


def list_offers(catalogue: Catalogue, wanted: OfferFilter, view: OfferView) -> OfferList:
    """Return the offers that match, cheapest first, those without a price last.

    Marketplaces and slices of a device are left out unless asked for: by `everything`, by naming
    the provider or the instance type, or because nobody else sells what is wanted. Where nothing
    matches, `nearby` holds what does with one of the wishes dropped, else with two, and so on.
    """
    listed = _listed(catalogue, wanted, view)
    if listed.matched:
        return listed
    return listed.model_copy(
        update={
            "nearby": _nearby(catalogue, wanted, view),
            "other_numbers": _other_numbers(catalogue, wanted, view),
        }
    )


def _other_numbers(
    catalogue: Catalogue, wanted: OfferFilter, view: OfferView
) -> OtherNumbers | None:
    """Return in which numbers the accelerators are sold where all else is as asked for."""
    rest = without_numbers(wanted)
    if rest == wanted:
        return None
    found = _listed(catalogue, rest, replace(view, top=None)).offers
    if not found:
        return None
    return OtherNumbers(
        of=wishes(rest)["accelerator"],
        per_instance=tuple(sorted({line.accelerators_per_node for line in found})),
        cheapest=found[0],
    )


def _nearby(catalogue: Catalogue, wanted: OfferFilter, view: OfferView) -> tuple[NearbyOffers, ...]:
    first = replace(view, top=1)
    for count in range(1, len(wishes(wanted))):
        found = [
            NearbyOffers(without=dropped, matched=listed.matched, cheapest=listed.offers[0])
            for dropped, rest in with_fewer_wishes(wanted, count)
            if (listed := _listed(catalogue, rest, first)).matched
        ]
        if found:
            return tuple(found)
    return ()


def _listed(catalogue: Catalogue, wanted: OfferFilter, view: OfferView) -> OfferList:
    found = select_offers(catalogue, wanted)
    kept = found
    if not (view.everything or wanted.providers or wanted.instance_types):
        ordinary = [o for o in found if not (o.marketplace or is_slice(o))]
        kept = ordinary or found
    dropped = [] if len(kept) == len(found) else [o for o in found if o.marketplace or is_slice(o)]
    kept = sorted(kept, key=lambda offer: _order(offer, view))
    shown = kept[: view.top]
    dates = [o.price_date for o in shown if o.price_date and not _is_unpriced(o)]
    return OfferList(
        snapshot_date=catalogue.snapshot_date,
        matched=len(kept),
        unpriced=sum(map(_is_unpriced, kept)),
        oldest_price=min(dates, default=None),
        newest_price=max(dates, default=None),
        left_out_marketplaces=sum(o.marketplace for o in dropped),
        left_out_slices=sum(not o.marketplace for o in dropped),
        offers=tuple(_offer_line(o, catalogue) for o in shown),
        asked=tuple(wishes(wanted).values()),
    )


def best_price(offers: Iterable[Offer], purchase: OfferPurchase) -> BestPrice | None:
    """Return the lowest known price per accelerator among these offers, or None.

    A spot price that carries no information (equal to on-demand, or a floor) does not count.
    """
    best: tuple[Decimal, Offer] | None = None
    for offer in offers:
        usd = offer.usd_per_accelerator_hour(purchase)
        if usd is None or (purchase == "spot" and not offer.spot_is_market):
            continue
        if best is None or usd < best[0]:
            best = (usd, offer)
    if best is None:
        return None
    usd, offer = best
    return BestPrice(
        usd_per_accelerator_hour=usd,
        provider=offer.provider,
        region=offer.region,
        instance_type=offer.instance_type,
        price_date=offer.price_date,
        is_host_apart=offer.is_host_apart,
    )


def is_slice(offer: Offer) -> bool:
    """Return whether the offer holds slices of a device (vGPU)."""
    return not float(offer.accelerators).is_integer()


def _offer_line(offer: Offer, catalogue: Catalogue) -> OfferLine:
    instance = catalogue.instance_of(offer)
    return OfferLine(
        **{name: getattr(offer, name) for name in _SHARED_WITH_OFFER},
        seller_name=seller_name(offer.provider, offer.instance_type),
        jurisdiction=catalogue.jurisdiction_of(offer),
        accelerators_per_node=offer.accelerators,
        on_demand_usd_per_accelerator_hour=offer.usd_per_accelerator_hour("on-demand"),
        spot_usd_per_accelerator_hour=offer.usd_per_accelerator_hour("spot"),
        spot_status=spot_status(offer, instance) if instance else None,
        has_spec=offer.accelerator in catalogue.accelerators,
        can_cluster=instance is not None and instance.can_cluster,
        intra_link=instance.intra_link.name if instance else None,
        intra_link_bytes_per_s=instance.intra_link.bytes_per_s if instance else None,
        inter_link=instance.inter_link.name if instance else None,
        inter_link_bytes_per_s=instance.inter_link.bytes_per_s if instance else None,
        vcpus=instance.vcpus if instance else None,
        memory_bytes=instance.memory_bytes if instance else None,
        break_even=_break_even(offer, catalogue),
    )


_SHARED_WITH_OFFER = (
    "provider",
    "region",
    "instance_type",
    "accelerator",
    "on_demand_usd_per_hour",
    "spot_usd_per_hour",
    "spot_is_market",
    "price_basis",
    "price_date",
    "price_date_precision",
    "marketplace",
    "launchable",
    "licence",
    "source",
    "note",
)


def _break_even(offer: Offer, catalogue: Catalogue) -> BreakEven | None:
    owned = catalogue.ownership.get((offer.provider, offer.instance_type))
    if owned is None:
        return None
    rivals = [
        rival
        for rival in catalogue.offers
        if rival.accelerator == offer.accelerator and not (rival.is_user or rival.marketplace)
    ]
    # Eight accelerators behind one switch are compared with the same, where anybody rents that.
    alike = [rival for rival in rivals if rival.accelerators == offer.accelerators]
    cheapest = best_price(alike, "on-demand") or best_price(rivals, "on-demand")
    if cheapest is None:
        return None
    rental = cheapest.usd_per_accelerator_hour * Decimal(str(offer.accelerators))
    return BreakEven(
        month=break_even_month(owned, rental_usd_per_hour=rental),
        against=f"{cheapest.provider} {cheapest.instance_type} in {cheapest.region}",
        rental_usd_per_hour=rental,
    )


def _order(offer: Offer, view: OfferView) -> tuple[int, Decimal, str, str, str]:
    """Return what to sort by: the price asked for, then the other kind of price, then none."""
    other: OfferPurchase = "on-demand" if view.purchase == "spot" else "spot"
    for rank, purchase in enumerate((view.purchase, other)):
        usd = (
            offer.usd_per_hour(purchase)
            if view.order == "price"
            else offer.usd_per_accelerator_hour(purchase)
        )
        if usd is not None:
            # A spot price that promises no discount must not lead the list of spot prices.
            hollow = purchase == "spot" and not offer.spot_is_market
            return rank + hollow, usd, offer.provider, offer.instance_type, offer.region
    return 3, Decimal(0), offer.provider, offer.instance_type, offer.region


def _is_unpriced(offer: Offer) -> bool:
    return offer.on_demand_usd_per_hour is None and offer.spot_usd_per_hour is None
