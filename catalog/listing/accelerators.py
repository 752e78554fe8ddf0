"""What `gpuplan gpus` answers: every accelerator with its lowest prices, or one in full. Pure."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from ..embedded import Catalogue
from ..names import aliases_of
from ..types import Accelerator, CatalogueRow, Confidence, Dtype, Offer
from .offers import SCHEMA_VERSION, BestPrice, best_price, is_slice

VENDORS = ("NVIDIA", "AMD", "Google", "AWS", "Intel")


class AcceleratorLine(CatalogueRow):
    """One accelerator with its lowest prices; figures are None for one without a spec row."""

    name: str
    vendor: str | None
    arch: str | None
    form_factor: str | None
    launch_year: int | None
    memory_bytes: int | None
    memory_visible_bytes: int | None
    memory_bandwidth_bytes_per_s: float | None
    peak_flops: dict[Dtype, float] | None
    link: str | None
    link_bytes_per_s: float | None
    tdp_w: float | None
    needs_xla: bool | None
    offers: int
    providers: tuple[str, ...]
    on_demand: BestPrice | None
    spot: BestPrice | None
    confidence: Confidence | None
    source: str | None
    note: str | None
    port_to: str | None
    """What a plain torch file must be ported to before it runs on it; None where it runs, or where
    the device is not known."""


class AcceleratorList(CatalogueRow):
    """Every accelerator that has a spec row or is sold."""

    schema_version: str = SCHEMA_VERSION
    snapshot_date: date
    accelerators: tuple[AcceleratorLine, ...]


class Seller(CatalogueRow):
    """One provider of an accelerator: how it sells it and its lowest prices."""

    provider: str
    regions: int
    """Regions it offers it in; 0: one price everywhere, regions not stated."""
    accelerators_per_node: tuple[float, ...]
    on_demand: BestPrice | None
    spot: BestPrice | None
    marketplace: bool
    launchable: bool


class AcceleratorSheet(CatalogueRow):
    """Everything known of one accelerator: its line, its spellings, and who sells it."""

    schema_version: str = SCHEMA_VERSION
    snapshot_date: date
    accelerator: AcceleratorLine
    compute_units: int | None
    boost_hz: float | None
    l2_bytes: int | None
    compute_capability: str | None
    memory_type: str | None
    memory_visible_source: str | None
    licence: str | None
    aliases: tuple[str, ...]
    sellers: tuple[Seller, ...]


def list_accelerators(catalogue: Catalogue) -> AcceleratorList:
    """Return every accelerator: vendors in turn, newest and fastest first, without a spec last."""
    sold: dict[str, list[Offer]] = {}
    for offer in catalogue.offers:
        sold.setdefault(offer.accelerator, []).append(offer)
    specified = _newest_first([row for row in catalogue.accelerators.values() if not row.is_cpu])
    unspecified = sorted(sold.keys() - catalogue.accelerators.keys())
    lines = [_accelerator_line(row.name, row, sold.get(row.name, [])) for row in specified]
    lines += [_accelerator_line(name, None, sold[name]) for name in unspecified]
    return AcceleratorList(snapshot_date=catalogue.snapshot_date, accelerators=tuple(lines))


def accelerator_sheet(catalogue: Catalogue, name: str) -> AcceleratorSheet:
    """Return everything known of the accelerator of this canonical name."""
    offers = [offer for offer in catalogue.offers if offer.accelerator == name]
    row = catalogue.accelerators.get(name)
    by_provider: dict[str, list[Offer]] = {}
    for offer in offers:
        by_provider.setdefault(offer.provider, []).append(offer)
    sellers = [_seller(provider, theirs) for provider, theirs in by_provider.items()]
    return AcceleratorSheet(
        snapshot_date=catalogue.snapshot_date,
        accelerator=_accelerator_line(name, row, offers),
        compute_units=row.compute_units if row else None,
        boost_hz=row.boost_hz if row else None,
        l2_bytes=row.l2_bytes if row else None,
        compute_capability=row.compute_capability if row else None,
        memory_type=row.memory_type if row else None,
        memory_visible_source=row.memory_visible_source if row else None,
        licence=row.licence if row else None,
        aliases=aliases_of(name),
        sellers=tuple(sorted(sellers, key=_cheapest_seller_first)),
    )


def _accelerator_line(name: str, row: Accelerator | None, offers: list[Offer]) -> AcceleratorLine:
    ordinary = [o for o in offers if not (o.marketplace or is_slice(o))]
    return AcceleratorLine(
        name=name,
        vendor=row.vendor if row else None,
        arch=row.arch if row else None,
        form_factor=row.form_factor if row else None,
        launch_year=row.launch_year if row else None,
        memory_bytes=row.memory_bytes if row else None,
        memory_visible_bytes=row.memory_visible_bytes if row else None,
        memory_bandwidth_bytes_per_s=row.memory_bandwidth_bytes_per_s if row else None,
        peak_flops=row.peak_flops if row else None,
        link=row.link if row else None,
        link_bytes_per_s=row.link_bytes_per_s if row else None,
        tdp_w=row.tdp_w if row else None,
        needs_xla=row.needs_xla if row else None,
        offers=len(offers),
        providers=tuple(sorted({offer.provider for offer in offers})),
        on_demand=best_price(ordinary, "on-demand"),
        spot=best_price(ordinary, "spot"),
        confidence=row.confidence if row else None,
        source=row.source if row else None,
        note=row.note if row else None,
        port_to=row.port_to if row else None,
    )


def _seller(provider: str, offers: list[Offer]) -> Seller:
    whole = [offer for offer in offers if not is_slice(offer)]
    return Seller(
        provider=provider,
        regions=len({offer.region for offer in offers} - {"global"}),
        accelerators_per_node=tuple(sorted({offer.accelerators for offer in offers})),
        on_demand=best_price(whole, "on-demand"),
        spot=best_price(whole, "spot"),
        marketplace=all(offer.marketplace for offer in offers),
        launchable=any(offer.launchable for offer in offers),
    )


def _cheapest_seller_first(seller: Seller) -> tuple[bool, bool, Decimal, str]:
    price = seller.on_demand or seller.spot
    usd = price.usd_per_accelerator_hour if price else Decimal(0)
    return seller.marketplace, price is None, usd, seller.provider


def _newest_first(rows: list[Accelerator]) -> list[Accelerator]:
    """Return vendor by vendor, each with its newest generation first, the fastest leading."""
    began: dict[str, int] = {}
    for row in rows:
        began[row.arch] = min(began.get(row.arch, 9999), row.launch_year or 9999)

    def key(row: Accelerator) -> tuple[int, int, str, float, str]:
        place = VENDORS.index(row.vendor) if row.vendor in VENDORS else len(VENDORS)
        peak = row.peak_flops.get("bf16") or row.peak_flops.get("fp16") or 0.0
        return place, -began[row.arch], row.arch, -peak, row.name

    return sorted(rows, key=key)
