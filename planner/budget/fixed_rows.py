"""Rows of a ledger that belong to no experiment: storage, traffic, idle machines, extras."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ...catalog.terms.storage import PriceTier, storage_prices, tiered_usd
from ...catalog.units import GB
from ..cost.run_cost import UNIT
from ..cost.tax import TAX, tax_rate
from .money import quantum, rounded_usd
from .planned import OWNED
from .project.lines import Egress, Storage
from .project.months import Month
from .project.project import Project
from .report.rows import Entry, EntryKind, LedgerLine
from .trend import trend_of


@dataclass(frozen=True, kw_only=True)
class IdlePrice:
    """What a machine of the project's `idle` costs; None where no source states it."""

    usd_per_hour: Decimal | None
    accelerator: str | None
    region: str | None
    list_usd_per_hour: Decimal | None = None
    """Before the discount of the pricebook; None without one."""
    is_owned: bool = False
    """Whether the machine is the user's own, bought: no trend and no tax moves its price."""


@dataclass(frozen=True, kw_only=True)
class UnitPrice:
    """The price of a unit of a line, US dollars."""

    usd: Decimal
    list_usd: Decimal | None = None
    """Before the discount of the pricebook; None without one."""


def fixed_rows(
    project: Project, idle: Sequence[IdlePrice], tax_percent: Decimal | None = None
) -> Iterator[Entry]:
    """Yield the rows of every month, in the order of the project file.

    What is rented has a row of its tax behind it; people and extras cost what the file says.

    Args:
        project: the project.
        idle: a price for each of its `idle`.
        tax_percent: on what is rented; None: none is counted.
    """
    for line, price in rented_lines(project, idle):
        if price is None:
            continue
        row = line.at(
            quantum(price.usd), None if price.list_usd is None else quantum(price.list_usd)
        )
        yield row
        if tax_percent and not _is_owned(row):
            yield _tax_row(row, tax_rate(tax_percent))
    yield from _extra_rows(project)


def rented_lines(
    project: Project, idle: Sequence[IdlePrice]
) -> Iterator[tuple[LedgerLine, UnitPrice | None]]:
    """Yield what is rented for no experiment, with its price: storage, traffic, idle machines.

    The price is None where no source states it.

    Args:
        project: the project.
        idle: a price for each of its `idle`.
    """
    yield from _storage_lines(project)
    yield from _egress_lines(project)
    yield from _idle_lines(project, idle)


def _is_owned(row: Entry) -> bool:
    return row.sku is not None and row.sku.endswith(f" {OWNED}")


def _tax_row(row: Entry, rate_usd: Decimal) -> Entry:
    """Return the tax on what a row costs: `rate_usd` for each dollar of it."""
    listed = None
    if row.list_unit_usd is not None and row.usd:
        listed = quantum(rate_usd) * row.list_usd / row.usd
    unit_usd = quantum(rate_usd)
    return row.model_copy(
        update={
            "kind": "tax",
            "name": TAX,
            "quantity": row.usd,
            "unit": "USD",
            "unit_usd": unit_usd,
            "usd": rounded_usd(row.usd, unit_usd),
            "list_unit_usd": listed,
        }
    )


def _storage_lines(project: Project) -> Iterator[tuple[LedgerLine, UnitPrice | None]]:
    for one in project.storage:
        known = storage_price(one)
        quantity, unit, usd = known or (one.gb, "GB-month", None)
        for month in storage_months(one, project):
            place = {"provider": one.provider, "region": one.region, "owner": project.owner}
            line = _project_line(month, "storage", one.name, quantity, unit, **place)
            yield line, None if usd is None else UnitPrice(usd=usd)


def storage_months(one: Storage, project: Project) -> list[Month]:
    """Return the months of a project in which data is kept."""
    first = max(one.start or project.start, project.start)
    last = project.end if one.months is None else first.plus(one.months - 1)
    return [first.plus(i) for i in range(min(last, project.end).since(first) + 1)]


def _egress_lines(project: Project) -> Iterator[tuple[LedgerLine, UnitPrice | None]]:
    for one in project.egress:
        quantity, unit, usd = egress_price(one) or (one.gb, "GB", None)
        place = {"provider": one.provider, "region": one.region, "owner": project.owner}
        line = _project_line(one.month or project.end, "egress", one.name, quantity, unit, **place)
        yield line, None if usd is None else UnitPrice(usd=usd)


def storage_price(one: Storage) -> tuple[float, str, Decimal] | None:
    """Return quantity, unit and unit price of a month of stored data; None where unknown."""
    if one.usd_per_gb_month is not None:
        return one.gb, "GB-month", one.usd_per_gb_month
    return _listed_price(one.gb, "GB-month", _tiers(one))


def egress_price(one: Egress) -> tuple[float, str, Decimal] | None:
    """Return quantity, unit and unit price of data that leaves; None where unknown."""
    if one.usd_per_gb is not None:
        return one.gb, "GB", one.usd_per_gb
    return _listed_price(one.gb, "GB", _tiers(one))


def known_until_gb(one: Storage | Egress) -> float | None:
    """Return how much of a month's amount has a list price; None where none of it has."""
    tiers = _tiers(one)
    last_bytes = tiers[-1].last_bytes if tiers else None
    return None if last_bytes is None else last_bytes / tiers[-1].gb_bytes


def _tiers(one: Storage | Egress) -> Sequence[PriceTier]:
    if one.provider is None:
        return ()
    prices = storage_prices(one.provider, one.region or "")
    return prices.object_storage if isinstance(one, Storage) else prices.internet_egress


def _listed_price(
    gb: float, unit: str, tiers: Sequence[PriceTier]
) -> tuple[float, str, Decimal] | None:
    """Return an amount at list prices: by its GB in the first tier, as a whole in several."""
    usd = tiered_usd(round(gb * GB), tiers)
    if usd is None:
        return None
    last_bytes = tiers[0].last_bytes
    if last_bytes is None or gb * GB <= last_bytes:
        return gb * GB / tiers[0].gb_bytes, unit, tiers[0].usd_per_gb
    return 1, "month" if unit == "GB-month" else "transfer", usd


def _idle_lines(
    project: Project, prices: Sequence[IdlePrice]
) -> Iterator[tuple[LedgerLine, UnitPrice | None]]:
    for one, price in zip(project.idle, prices, strict=True):
        for i in range(project.months):
            month = project.start.plus(i)
            line = _project_line(
                month,
                "idle",
                one.name,
                one.nodes * one.hours_per_month,
                UNIT,
                provider=one.provider,
                region=price.region,
                sku=f"{one.instance} {OWNED if price.is_owned else 'on-demand'}",
                accelerator=price.accelerator,
                owner=one.owner or project.owner,
            )
            trend = Decimal(1) if price.is_owned else trend_of(project, month)
            usd, listed = price.usd_per_hour, price.list_usd_per_hour
            list_usd = None if listed is None else listed * trend
            yield line, None if usd is None else UnitPrice(usd=usd * trend, list_usd=list_usd)


def _extra_rows(project: Project) -> Iterator[Entry]:
    for one in project.extras:
        kind = "people" if one.kind == "people" else "extra"
        owner, usd = one.owner or project.owner, quantum(one.usd)
        if one.month is not None:
            yield _project_line(one.month, kind, one.name, 1, "once", owner=owner).at(usd)
            continue
        for i in range(project.months):
            month = project.start.plus(i)
            yield _project_line(month, kind, one.name, 1, "month", owner=owner).at(usd)


def _project_line(
    month: Month, kind: EntryKind, name: str, quantity: float, unit: str, **place: str | None
) -> LedgerLine:
    """Return a line of the ledger that belongs to no experiment."""
    known = dict.fromkeys(("stage", "owner", "provider", "region", "sku", "accelerator"))
    return LedgerLine.model_validate(
        {
            **known,
            **place,
            "month": month,
            "experiment": None,
            "kind": kind,
            "name": name,
            "quantity": quantum(quantity),
            "unit": unit,
        }
    )
