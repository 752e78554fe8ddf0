"""A plan at the user's own terms: what `launch --pricebook` makes of its price."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from ....catalog.errors import PriceError
from ....catalog.snapshot import Catalogue
from ....catalog.terms.terms_of_offer import Term, terms_of
from ....catalog.types import Offer
from ....planner.cost.paid_whole import PaidWhole
from ....planner.plan.plan import ChosenOffer, Plan
from ...store.sourced_plan import SourcedPlan

TERMS = ("committed", "reserved")


def at_own_terms(given: SourcedPlan, catalogue: Catalogue, pricebook: Path) -> SourcedPlan:
    """Return a plan with the price that a pricebook makes of today's, in place of its own.

    It keeps its id: the store knows it by that. What it was made from names the pricebook from then
    on. A price that the user's own offers file states, or of bought hardware, is what they pay
    already.

    Args:
        given: the plan.
        catalogue: at the terms of the pricebook.
        pricebook: where these are from.

    Raises:
        PriceError: it is paid for a term that the pricebook states no price for.
    """
    plan, origin = given.plan, given.origin
    offer = _at_terms(plan.offer, catalogue)
    usd = offer.usd_per_hour
    plan = plan.model_copy(
        update={"offer": offer, "usd_per_hour": None if usd is None else usd * plan.nodes}
    )
    if origin is not None:
        place = str(pricebook.expanduser().absolute())
        origin = origin.model_copy(update={"pricebook": place})
    return replace(given, plan=plan, origin=origin)


def _at_terms(chosen: ChosenOffer, catalogue: Catalogue) -> ChosenOffer:
    book = catalogue.pricebook
    offer = _offer(chosen, catalogue)
    if chosen.purchase == "owned" or offer is None:
        return chosen
    changes: dict[str, Any] = {"tax_percent": _float(book.tax_percent)}
    usd, percent = _price(chosen, offer, catalogue)
    if usd is not None:
        changes |= {
            "usd_per_hour": float(usd),
            "discount_percent": _float(percent),
            "list_usd_per_hour": _float(list_price(usd, percent)),
        }
    spot = offer.market_spot_usd_per_hour
    return chosen.model_copy(update={**changes, "spot_usd_per_hour": _float(spot)})


def _offer(chosen: ChosenOffer, catalogue: Catalogue) -> Offer | None:
    key = chosen.provider, chosen.region, chosen.instance_type
    listed = (*catalogue.offers, *catalogue.cpu_offers)
    return next((o for o in listed if (o.provider, o.region, o.instance_type) == key), None)


def _price(
    chosen: ChosenOffer, offer: Offer, catalogue: Catalogue
) -> tuple[Decimal | None, Decimal | None]:
    """Return the price of a node bought as planned, and what the pricebook has taken off it."""
    book = catalogue.pricebook
    if chosen.purchase in TERMS:
        term = _term(chosen, terms_of(offer, catalogue))
        return term.usd_per_hour, term.discount_percent
    if chosen.purchase == "spot":
        return offer.market_spot_usd_per_hour, book.discount_percent(offer, "spot")
    return offer.on_demand_usd_per_hour, book.discount_percent(offer, "on-demand")


def _term(chosen: ChosenOffer, terms: tuple[Term, ...]) -> Term:
    for term in terms:
        if _is_same(term, chosen):
            return term
    raise PriceError(
        f"The plan pays for {chosen.instance_type} ({chosen.provider}) in {chosen.region} for"
        f" {chosen.term_years:g} year(s), and the pricebook has no such price.",
        fix="state it under `reserved:` of the pricebook, or take a plan on demand.",
    )


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A term that is to be signed for a launch, as nobody says that it is held already."""

    term: Term
    on_demand_usd_per_hour: Decimal | None
    """What the same machine costs by the hour."""
    is_for_this_alone: bool
    """Whether the plan's cost holds all of it; else this job's share, others use the rest."""

    @property
    def paid_whole(self) -> PaidWhole:
        """What is paid of it, used or not."""
        return PaidWhole.of(self.term, self.on_demand_usd_per_hour)


def to_be_signed(plan: Plan, catalogue: Catalogue) -> Signed | None:
    """Return the term that a plan's machines have to be signed for; None for one that is held.

    It is held where the pricebook states a `count` of it, now or when the plan was made; where the
    catalogue has no such price any more, nothing is known of it.
    """
    chosen, use = plan.offer, plan.commitment
    offer = _offer(chosen, catalogue)
    same = _same_terms(plan, catalogue)
    if offer is None or not same or is_held(plan, catalogue):
        return None
    return Signed(
        term=same[0],
        on_demand_usd_per_hour=offer.on_demand_usd_per_hour,
        is_for_this_alone=use is not None and use.unused_is_counted,
    )


def is_held(plan: Plan, catalogue: Catalogue) -> bool:
    """Return whether the pricebook says, or said when a plan was made, that its term is held."""
    use = plan.commitment
    was_held = use is not None and use.nodes_held is not None
    return was_held or any(one.is_held for one in _same_terms(plan, catalogue))


def _same_terms(plan: Plan, catalogue: Catalogue) -> tuple[Term, ...]:
    """Return the terms that a plan's price may be that of; none by the hour."""
    offer = _offer(plan.offer, catalogue)
    if plan.offer.purchase not in TERMS or offer is None:
        return ()
    return tuple(one for one in terms_of(offer, catalogue) if _is_same(one, plan.offer))


def _is_same(term: Term, chosen: ChosenOffer) -> bool:
    return float(term.years) == chosen.term_years and term.price_basis == chosen.price_basis


def list_price(usd: Decimal, percent: Decimal | None) -> Decimal | None:
    """Return a price before a discount; None without one, or where nothing is left to pay."""
    return None if percent is None or percent >= 100 else usd * 100 / (100 - percent)


def _float(number: Decimal | None) -> float | None:
    return None if number is None else float(f"{number:.12g}")
