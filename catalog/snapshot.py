"""The catalogue that a command asks for: the embedded one, and what `--offers` adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from .embedded import Catalogue, embedded_catalogue

if TYPE_CHECKING:
    from .user_files.offers import UserOffers

K = TypeVar("K")
V = TypeVar("V")


def load_catalogue(user_offers: Path | None = None) -> Catalogue:
    """Return the embedded catalogue, with the user's own offers added if a file is given.

    Raises:
        PriceError: The embedded tables are missing or damaged.
        UsageError: The user's file cannot be read or is not understood.
    """
    embedded = embedded_catalogue()
    if user_offers is None:
        return embedded
    # Read only when asked for: the YAML reader costs start-up time.
    from .user_files.offers import load_user_offers

    return add_offers(embedded, load_user_offers(user_offers, embedded))


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
    )


def _with(old: Mapping[K, V], new: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType({**old, **new})
