"""What the clouds sell: offers, accelerators, and their prices in a SkyPilot of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ..catalog.listing.accelerators import AcceleratorList, AcceleratorSheet
    from ..catalog.listing.offers import OfferList, OfferOrder
    from ..launcher.skypilot.price_tables import Export


@dataclass(frozen=True, kw_only=True)
class ExportedPrices:
    """What came of writing the catalogue's prices into a SkyPilot's tables."""

    export: Export | None
    """What was written; None where the tables were there already."""
    missing_clouds: tuple[str, ...]
    """Those whose own table SkyPilot has not downloaded yet, so that its prices stay."""


def offers(
    *,
    accelerators: Iterable[str] = (),
    providers: Iterable[str] = (),
    regions: Iterable[str] = (),
    jurisdictions: Iterable[str] = (),
    instances: Iterable[str] = (),
    purchase: Literal["any", "on-demand", "spot"] = "any",
    max_usd_per_hour: Decimal | float | None = None,
    launchable: bool = False,
    order: OfferOrder = "price-per-accelerator",
    everything: bool = False,
    top: int | None = None,
    offers: Path | None = None,
) -> OfferList:
    """Return what the clouds sell, cheapest first, offers without a price last.

    Args:
        accelerators: Only these, as "H100" or "H100:8"; a family name takes all its members.
        providers: Only these; "all": marketplaces too.
        regions: Only these.
        jurisdictions: Only regions in these: eu, eu27, us, or a country's two letters.
        instances: Only these instance types.
        purchase: Only offers with a price of this kind; "any" sorts by on-demand prices.
        max_usd_per_hour: Of an instance, all its accelerators together.
        launchable: Whether only sellers count that `launch` can reach, and the user's own machines.
        order: By the price of the instance, or of one accelerator of it.
        everything: Whether marketplaces and slices of a device count too.
        top: How many are returned; None: all.
        offers: The user's own machines, listed too.

    Raises:
        GpuplanError: A name or the offers file is not understood.
    """
    from ..catalog.listing.offers import OfferView, list_offers
    from ..catalog.listing.query import parse_filter
    from ..catalog.snapshot import load_catalogue

    sellers = tuple(providers)
    named = [name for name in sellers if name.casefold() != "all"]
    catalogue = load_catalogue(offers)
    wanted = parse_filter(
        catalogue,
        accelerators=accelerators,
        providers=named,
        regions=regions,
        jurisdictions=jurisdictions,
        instance_types=instances,
        purchase=purchase,
        max_usd_per_hour=max_usd_per_hour,
        launchable_only=launchable,
    )
    view = OfferView(
        order=order,
        purchase="spot" if purchase == "spot" else "on-demand",
        everything=everything or len(named) < len(sellers),
        top=top,
    )
    return list_offers(catalogue, wanted, view)


def gpus(family: str | None = None, *, offers: Path | None = None) -> AcceleratorList:
    """Return every accelerator with its peaks and lowest prices, or those that a name means.

    Args:
        family: A name or the beginning of several, such as "A100"; None: all accelerators.
        offers: The user's own machines, whose accelerators are listed too.

    Raises:
        UsageError: There is no such accelerator, or the offers file is not understood.
    """
    from ..catalog.listing.accelerators import list_accelerators
    from ..catalog.names import match_accelerators
    from ..catalog.snapshot import load_catalogue

    catalogue = load_catalogue(offers)
    listed = list_accelerators(catalogue)
    if family is None:
        return listed
    wanted = set(match_accelerators(family, catalogue=catalogue))
    kept = tuple(line for line in listed.accelerators if line.name in wanted)
    return listed.model_copy(update={"accelerators": kept})


def gpu(name: str, *, offers: Path | None = None) -> AcceleratorSheet:
    """Return all that is known of one accelerator, and who sells it.

    Args:
        name: Any known name of it.
        offers: The user's own machines, whose accelerators are known too.

    Raises:
        UsageError: There is no such accelerator, or several.
    """
    from ..catalog.listing.accelerators import accelerator_sheet
    from ..catalog.names import resolve_accelerator
    from ..catalog.snapshot import load_catalogue

    catalogue = load_catalogue(offers)
    return accelerator_sheet(catalogue, resolve_accelerator(name, catalogue=catalogue))


def export_prices(folder: Path, *, offers: Path | None = None) -> ExportedPrices:
    """Write the catalogue's prices into a SkyPilot of its own; return what was written.

    Args:
        folder: The home of that SkyPilot, not the user's own; made if it is not there.
        offers: The user's own machines and prices.

    Raises:
        UsageError: A table of SkyPilot cannot be read, or the folder cannot be written.
    """
    from ..catalog.snapshot import load_catalogue
    from ..launcher.skypilot.home import missing_tables, write_prices
    from ..launcher.skypilot.price_tables import clouds_of

    catalogue = load_catalogue(offers)
    export = write_prices(folder, catalogue, person=Path.home())
    missing = missing_tables(folder, clouds_of(catalogue), person=Path.home())
    return ExportedPrices(export=export, missing_clouds=missing)
