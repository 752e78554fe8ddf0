"""The catalogue that a command asks for: the embedded one, with what the user has of their own.

Refreshed prices come first, then the user's offers, then their terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from .embedded import Catalogue, embedded_catalogue
from .price_folder import newest_snapshot_file

if TYPE_CHECKING:
    from .terms.pricebook import Pricebook
    from .user_files.offers import UserOffers

K = TypeVar("K")
V = TypeVar("V")


def load_catalogue(user_offers: Path | None = None, pricebook: Path | None = None) -> Catalogue:
    """Return the catalogue at the newest prices that the user has, with their offers and terms.

    Raises:
        PriceError: The embedded tables, or the user's newest snapshot, are missing or damaged.
        UsageError: A file of the user cannot be read or is not understood.
    """
    catalogue = _at_refreshed_prices(embedded_catalogue())
    # Read only when asked for: the YAML reader costs start-up time.
    if user_offers is not None:
        from .user_files.offers import load_user_offers

        catalogue = add_offers(catalogue, load_user_offers(user_offers, catalogue))
    if pricebook is not None:
        from .user_files.pricebook import load_pricebook

        catalogue = at_terms(catalogue, load_pricebook(pricebook, catalogue))
    return catalogue


def _at_refreshed_prices(catalogue: Catalogue) -> Catalogue:
    path = newest_snapshot_file()
    if path is None:
        return catalogue
    # Imported only where there is a snapshot: most users have none.
    from .prices.files import catalogue_with

    return catalogue_with(catalogue, path)


def at_terms(catalogue: Catalogue, book: Pricebook) -> Catalogue:
    """Return a catalogue at the prices of one customer: discounts are taken off its offers."""
    return replace(
        catalogue,
        offers=tuple(map(book.priced, catalogue.offers)),
        cpu_offers=tuple(map(book.priced, catalogue.cpu_offers)),
        pricebook=book,
    )


def add_offers(catalogue: Catalogue, mine: UserOffers) -> Catalogue:
    """Return a catalogue that also holds the user's rows; a row of a known key replaces the old."""
    replaced = {(offer.provider, offer.region, offer.instance_type) for offer in mine.offers}
    kept = tuple(
        offer
        for offer in catalogue.offers
        if (offer.provider, offer.region, offer.instance_type) not in replaced
    )
    return replace(
        catalogue,
        accelerators=_with(catalogue.accelerators, {row.name: row for row in mine.accelerators}),
        instances=_with(
            catalogue.instances, {(row.provider, row.instance_type): row for row in mine.instances}
        ),
        offers=kept + mine.offers,
        providers=_with(catalogue.providers, {row.name: row for row in mine.providers}),
        regions=_with(catalogue.regions, {(row.provider, row.name): row for row in mine.regions}),
        ownership=_with(catalogue.ownership, mine.ownership),
        own_nodes=_with(catalogue.own_nodes, mine.own_nodes),
    )


def _with(old: Mapping[K, V], new: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType({**old, **new})
