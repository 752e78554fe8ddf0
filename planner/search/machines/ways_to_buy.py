"""The ways of paying for a machine that a question allows, each with its price."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from ....catalog.embedded import Catalogue
from ....catalog.terms.pricebook import Pricebook
from ....catalog.terms.terms_of_offer import PRICEBOOK, Term, blocks_of, terms_of
from ....catalog.types import Offer
from ....catalog.vocabulary import COMMITTED_YEARS, Purchase, PurchaseWish


@dataclass(frozen=True, kw_only=True)
class Way:
    """One offer, paid for in one way."""

    offer: Offer
    purchase: Purchase
    usd_per_hour: Decimal | None
    discount_percent: Decimal | None = None
    term: Term | None = None
    pays_rest: bool = False
    """Whether a job pays for what it leaves unused of the term."""


def by_the_hour(offer: Offer, wish: PurchaseWish, book: Pricebook) -> Way:
    """Return an offer on demand or on spot, as is wished; the cheaper for "any"."""
    on_demand, spot = offer.on_demand_usd_per_hour, offer.market_spot_usd_per_hour
    is_cheaper = spot is not None and (on_demand is None or spot < on_demand)
    if wish == "spot" or (wish == "any" and is_cheaper):
        off = book.discount_percent(offer, "spot")
        return Way(offer=offer, purchase="spot", usd_per_hour=spot, discount_percent=off)
    return Way(
        offer=offer,
        purchase="owned" if offer.price_basis == "owned" else "on-demand",
        usd_per_hour=on_demand,
        discount_percent=book.discount_percent(offer, "on-demand"),
    )


def for_a_term(offers: Iterable[Offer], wish: PurchaseWish, catalogue: Catalogue) -> list[Way]:
    """Return every commitment, block or reservation that is wished and that a price is known of.

    A commitment that is asked for is that of a job among others: it pays its share. Bought for this
    job, which is what "any" compares, it is paid whole; a reservation that is held is paid already.
    """
    found = []
    for offer in offers:
        if wish in ("block", "any"):
            found += [_block(offer, term) for term in blocks_of(offer, catalogue)]
        for term in terms_of(offer, catalogue):
            if _is_wished(term, wish):
                found.append(
                    Way(
                        offer=offer,
                        purchase="reserved" if term.is_held or wish == "reserved" else "committed",
                        usd_per_hour=term.usd_per_hour,
                        discount_percent=term.discount_percent,
                        term=term,
                        pays_rest=wish == "any" and not term.is_held,
                    )
                )
    return found


def _block(offer: Offer, term: Term) -> Way:
    """Return a capacity block, which is always rented for this job and paid whole."""
    usd = term.usd_per_hour
    return Way(offer=offer, purchase="block", usd_per_hour=usd, term=term, pays_rest=True)


def _is_wished(term: Term, wish: PurchaseWish) -> bool:
    if wish == "reserved":
        return term.price_basis == PRICEBOOK
    if wish in COMMITTED_YEARS:
        return term.years == COMMITTED_YEARS[wish] and not term.is_held
    return wish == "any"
