"""The catalogue in memory, and the snapshot of it that is embedded in the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from .csv_rows import read_accelerators, read_instances, read_offers, read_providers, read_regions
from .errors import PriceError
from .listing.ownership import Ownership
from .listing.sources import PriceSource
from .terms.billing_minimums import with_minimum_of
from .terms.on_demand import without_on_demand
from .terms.pricebook import Pricebook
from .types import Accelerator, CommitmentRow, EvictionRow, Instance, Offer, Provider, Region

DATA_DIR = Path(__file__).parent / "data"


CURATED_DIR = DATA_DIR / "curated"


InstanceKey = tuple[str, str]
"""(provider, instance type)."""


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """Everything the world offers, as one immutable value."""

    accelerators: Mapping[str, Accelerator]
    """All accelerators by canonical name, host processors ("CPU-…") included."""
    instances: Mapping[InstanceKey, Instance]
    offers: tuple[Offer, ...]
    """Offers of accelerators, some without a price or a spec row; those of the user come last."""
    cpu_offers: tuple[Offer, ...]
    """Offers of host processors, apart so that no list of accelerators holds them by accident."""
    providers: Mapping[str, Provider]
    regions: Mapping[tuple[str, str], Region]
    """All regions by (provider, region)."""
    snapshot_date: date
    ownership: Mapping[InstanceKey, Ownership] = field(default_factory=dict)
    """Bought hardware of the user: what it cost, for the price and the break-even month."""
    own_nodes: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """How many machines the user has, by (provider, region, instance type)."""
    pricebook: Pricebook = field(default_factory=Pricebook)
    """The user's own terms; discounts are taken off the offers' prices already."""
    commitments: Mapping[tuple[str, str, str], tuple[CommitmentRow, ...]] = field(
        default_factory=dict
    )
    """Prices of commitments that the user refreshed, by (provider, region, instance type); those of
    the package are read when they are asked for."""
    evictions: Mapping[tuple[str, str, str], EvictionRow] = field(default_factory=dict)
    """Chances of eviction per hour that the user refreshed, by the same place."""
    price_source: PriceSource = field(default_factory=PriceSource)
    """Whether the user has refreshed prices, when, and whose."""

    def instance_of(self, offer: Offer) -> Instance | None:
        """Return the instance an offer is for, or None if its topology is unknown."""
        return self.instances.get((offer.provider, offer.instance_type))

    def accelerator_of(self, offer: Offer) -> Accelerator | None:
        """Return the accelerator an offer is for, or None if it has no spec row."""
        return self.accelerators.get(offer.accelerator)

    def billing_of(self, provider: str, instance_type: str) -> Provider | None:
        """Return how a seller bills one of its types, or None if the seller is unknown."""
        seller = self.providers.get(provider)
        return None if seller is None else with_minimum_of(seller, instance_type, CURATED_DIR)

    def jurisdiction_of(self, offer: Offer) -> str | None:
        """Return the country the offer's region stands in ("de"), or None if it is unknown."""
        region = self.regions.get((offer.provider, offer.region))
        return region.jurisdiction if region else None


def snapshot_facts(data_dir: Path = DATA_DIR) -> dict[str, object]:
    """Return what `snapshot.json` says of the embedded tables: dates, row counts, warnings."""
    facts: dict[str, object] = json.loads((data_dir / "snapshot.json").read_text("utf-8"))
    return facts


@lru_cache(maxsize=1)
def embedded_catalogue() -> Catalogue:
    """Return the embedded catalogue, read once.

    Raises:
        PriceError: The embedded tables are missing or damaged.
    """
    try:
        return read_catalogue(DATA_DIR)
    except (OSError, ValueError, KeyError) as error:
        raise PriceError(
            f"The embedded catalogue is damaged: {error}", fix="Reinstall gpuplan."
        ) from error


def read_catalogue(
    data_dir: Path, *, curated_dir: Path = CURATED_DIR, validate: bool = False
) -> Catalogue:
    """Return the catalogue that the tables of one folder hold.

    Args:
        data_dir: The generated tables and `snapshot.json`.
        curated_dir: The tables kept by hand.
        validate: Check every field of every row; the embedded tables were checked when built.
    """
    accelerators = read_accelerators(data_dir / "accelerators.csv", validate=validate)
    accelerators += read_accelerators(curated_dir / "cpu_accelerators.csv", validate=validate)
    instances = read_instances(data_dir / "instances.csv", validate=validate)
    instances += read_instances(curated_dir / "cpu_instances.csv", validate=validate)
    providers = read_providers(data_dir / "providers.csv", validate=validate)
    regions = read_regions(data_dir / "regions.csv", validate=validate)
    return Catalogue(
        accelerators=MappingProxyType({row.name: row for row in accelerators}),
        instances=MappingProxyType({(row.provider, row.instance_type): row for row in instances}),
        offers=without_on_demand(
            read_offers(data_dir / "offers.csv", validate=validate), curated_dir
        ),
        cpu_offers=tuple(read_offers(curated_dir / "cpu_offers.csv", validate=validate)),
        providers=MappingProxyType({row.name: row for row in providers}),
        regions=MappingProxyType({(row.provider, row.name): row for row in regions}),
        snapshot_date=date.fromisoformat(str(snapshot_facts(data_dir)["date"])),
    )
