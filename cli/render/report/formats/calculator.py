"""The lines of a report as they are typed into the price calculators of AWS, GCP and Azure.

Programmes that give cloud credits ask for an estimate of the provider's own calculator beside the
text: https://www.cloudbank.org/best-practices-nairr-cloud-resource-requests
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal

from .....catalog.units import HOURS_PER_MONTH
from .....planner.budget.report.report import BudgetReport
from .....planner.budget.report.rows import Entry
from ..figures import CENT
from ..tables.tables import Column, Table
from .csv import csv_text

UNIT = "instance-hour"
DISKS, DOWNLOAD = "disks", "download of a checkpoint"
"""Names of the ledger."""
CALCULATORS = {
    "aws": "https://calculator.aws/",
    "gcp": "https://cloud.google.com/products/calculator",
    "azure": "https://azure.microsoft.com/pricing/calculator/",
}
"""Provider → its price calculator."""
SERVICES = {
    "aws": ("Amazon EC2", "Amazon S3", "AWS Data Transfer", "Amazon EBS"),
    "gcp": ("Compute Engine", "Cloud Storage", "Cloud Storage data transfer", "Persistent Disk"),
    "azure": ("Virtual Machines", "Storage Accounts", "Bandwidth", "Managed Disks"),
}
"""Provider → how its calculator calls machines, stored objects, data that leaves, and disks."""
BY_GB = {"GB-month": "GB", "GB": "GB"}
"""Unit of the ledger → unit of the quantity of one month."""


@dataclass(frozen=True, kw_only=True)
class CalculatorLine:
    """One line to type in, with the price of this report beside it."""

    provider: str | None
    calculator: str | None
    """Its address; None where neither AWS, GCP nor Azure is paid, or nothing is typed in."""
    service: str | None
    """As the calculator calls it."""
    region: str | None
    item: str
    """Instance type, or the name of the line."""
    terms: str | None
    """How a machine is paid for: on-demand, spot …"""
    quantity: Decimal | None
    """Machines, or GB of one month; None where the ledger holds an amount of dollars alone."""
    quantity_unit: str | None
    hours_per_month: Decimal | None
    """Hours a month of each machine, on average over the months."""
    months: int
    """Months in which it is used."""
    total: Decimal
    """In `unit`, exact, of all months together."""
    unit: str
    unit_usd: Decimal
    """Our price of one unit, US dollars."""
    usd: Decimal
    """Sum of the ledger's rows, US dollars."""


def calculator_lines(report: BudgetReport) -> list[CalculatorLine]:
    """Return every row of the ledger as lines to type in, the dearest first; sums are the report's.

    What no calculator of the three knows, such as people and tax, comes last.
    """
    found: dict[tuple[object, ...], list[Entry]] = {}
    for entry in report.entries:
        found.setdefault(_key(entry), []).append(entry)
    lines = [_line(entries) for entries in found.values()]
    return sorted(lines, key=lambda one: (one.calculator is None, -one.usd))


def render_calculator(report: BudgetReport) -> str:
    """Return the lines as CSV with a heading; what is not known is an empty cell."""
    names = [one.name for one in fields(CalculatorLine)]
    rows = ([getattr(line, name) for name in names] for line in calculator_lines(report))
    return csv_text(names, rows)


def calculator_table(report: BudgetReport) -> Table:
    """Return the lines that AWS, GCP or Azure are paid for."""
    return Table(
        id="calculator",
        caption="Lines to type into the providers' price calculators",
        columns=(
            Column("Service"),
            Column("Region", may_be_absent=True),
            Column("Instance type or line", is_name=True),
            Column("Terms", may_be_absent=True),
            Column("Machines or GB", "number", may_be_absent=True),
            Column("Hours a month of each", "number", may_be_absent=True),
            Column("Months", "count"),
            Column("Our unit price", "unit_usd"),
            Column("Our price", "usd", adds=True),
        ),
        rows=tuple(
            (
                one.service,
                one.region,
                one.item,
                one.terms,
                one.quantity,
                one.hours_per_month,
                one.months,
                one.unit_usd,
                one.usd,
            )
            for one in calculator_lines(report)
            if one.calculator is not None
        ),
        has_total=True,
    )


def _key(entry: Entry) -> tuple[object, ...]:
    machine = entry.unit == UNIT
    name = None if machine else entry.name
    kind = None if machine else entry.kind
    return (kind, name, entry.provider, entry.region, entry.sku, entry.unit, entry.unit_usd)


def _line(entries: list[Entry]) -> CalculatorLine:
    first = entries[0]
    months = _by_month(entries)
    total = sum(months.values(), Decimal(0))
    is_machine = first.unit == UNIT
    item, _, terms = (first.sku or "").partition(" ") if is_machine else (first.name, "", "")
    service = _service(first)
    quantity, hours = _typed(months, first.unit)
    unit = "instances" if is_machine else BY_GB.get(first.unit)
    return CalculatorLine(
        provider=first.provider,
        calculator=CALCULATORS.get(first.provider or "") if service else None,
        service=service,
        region=first.region,
        item=item or first.name,
        terms=terms or None,
        quantity=quantity,
        quantity_unit=unit,
        hours_per_month=hours,
        months=len(months),
        total=total,
        unit=first.unit,
        unit_usd=first.unit_usd,
        usd=sum((one.usd for one in entries), Decimal(0)),
    )


def _by_month(entries: Iterable[Entry]) -> dict[object, Decimal]:
    found: dict[object, Decimal] = {}
    for one in entries:
        found[one.month] = found.get(one.month, Decimal(0)) + one.quantity
    return found


def _service(entry: Entry) -> str | None:
    names = SERVICES.get(entry.provider or "")
    if names is None or entry.kind in ("tax", "people", "extra"):
        return None
    machines, stored, sent, disks = names
    if entry.unit == UNIT:
        return machines
    if entry.kind == "storage" and entry.name in (DISKS, DOWNLOAD):
        return disks if entry.name == DISKS else sent
    return {"storage": stored, "egress": sent}.get(entry.kind)


def _typed(months: dict[object, Decimal], unit: str) -> tuple[Decimal | None, Decimal | None]:
    """Return the quantity and the hours a month: as few machines as the fullest month needs."""
    total = sum(months.values(), Decimal(0))
    mean = total / len(months)
    if unit == UNIT:
        fullest = max(months.values()) / HOURS_PER_MONTH
        machines = max(Decimal(1), fullest.to_integral_value(rounding=ROUND_CEILING))
        return machines, (mean / machines).quantize(CENT, rounding=ROUND_HALF_UP)
    return (mean.quantize(CENT, rounding=ROUND_HALF_UP) if unit in BY_GB else None), None
