"""Offers that a question asks for, and which of them are of machines that are known and train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ....catalog.listing.no_match import no_match_text
from ....catalog.listing.offers import OfferView, list_offers
from ....catalog.listing.query import OfferFilter, parse_filter
from ....catalog.snapshot import Catalogue
from ....catalog.types import Accelerator, Offer
from ...plan.question import Machine

INSTEAD = {"launchable": "with --provider all"}
"""What `estimate` is given to drop a wish that has an option of its own in `offers` alone."""


def wanted_offers(catalogue: Catalogue, machine: Machine) -> OfferFilter:
    """Return which offers a question is about.

    Raises:
        UsageError: it names what nobody sells.
    """
    everywhere = "all" in machine.providers
    named = tuple(p for p in machine.providers if p != "all")
    return parse_filter(
        catalogue,
        accelerators=machine.accelerators,
        providers=named,
        regions=machine.regions,
        jurisdictions=machine.jurisdictions,
        instance_types=machine.instances,
        launchable_only=not (everywhere or named or machine.instances),
    )


@dataclass(frozen=True, kw_only=True)
class KnownOffers:
    """Offers of machines that are known and train, and how many others there are."""

    offers: tuple[Offer, ...]
    without_spec: int
    cannot_train: int
    untrainable: tuple[Accelerator, ...]
    """Devices of those that cannot, each once."""

    def by_type(self, *, by_region: bool) -> Iterable[list[Offer]]:
        """Return the offers of each instance type, of each of its regions where that is asked."""
        groups: dict[tuple[str, ...], list[Offer]] = {}
        for offer in self.offers:
            region = (offer.region,) if by_region else ()
            groups.setdefault((offer.provider, offer.instance_type, *region), []).append(offer)
        return groups.values()


def known_offers(offers: Iterable[Offer], catalogue: Catalogue) -> KnownOffers:
    """Return offers of machines that are known and train, and count the others."""
    found: list[Offer] = []
    without_spec = cannot_train = 0
    untrainable: dict[str, Accelerator] = {}
    for offer in offers:
        instance = catalogue.instance_of(offer)
        accelerator = catalogue.accelerator_of(offer)
        if accelerator is None or instance is None:
            without_spec += 1
        elif instance.is_fractional or not accelerator.can_train:
            cannot_train += 1
            untrainable.setdefault(accelerator.name, accelerator)
        else:
            found.append(offer)
    return KnownOffers(
        offers=tuple(found),
        without_spec=without_spec,
        cannot_train=cannot_train,
        untrainable=tuple(untrainable.values()),
    )


def no_match_of(catalogue: Catalogue, wanted: OfferFilter) -> str:
    """Return that nobody sells what is asked for, and what nearby is sold, as one sentence."""
    listed = list_offers(catalogue, wanted, OfferView(everything=True))
    return f"{no_match_text(listed, instead=INSTEAD)}."
