"""The ledger of a budget report as rows of FOCUS 1.2, for the tools that read invoices so.

A forecast is no charge: the rows go into a file of their own, and `x_RecordType` says "forecast" in
each. No cell can mark a sum: where a part of the project has no known price, `x_TotalIsLowerBound`
is "true" in every row, and `x_PartsWithoutPrice` names what is missing beside a row in its month.
All 21 mandatory columns are there, and the conditional ones that a forecast can know; the FOCUS
columns come first, in alphabetical order, then ours, which begin with `x_`. Contracted prices
are those that are paid; list prices are those before the discounts of the user's pricebook, and
repeat what is paid where no other is known. The specification:
https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec/tree/v1.2/specification
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

from .....planner.budget.money import QUANTUM
from .....planner.budget.project.months import Month
from .....planner.budget.report.report import BudgetReport
from .....planner.budget.report.rows import Entry
from .csv import csv_text

Row = dict[str, str | Decimal | None]
Parts = Mapping[tuple[str | None, Month], str]
"""Experiment, None for what belongs to none, and month → what of it has no known price."""

CURRENCY = "USD"
SERVICES = {
    "storage": ("Storage", "Stored data"),
    "egress": ("Networking", "Data transfer"),
    "people": ("Other", "People"),
    "extra": ("Other", "Fixed amounts"),
    "tax": ("Other", "Tax"),
}
"""Kind of the ledger → ServiceCategory and ServiceName; all other kinds are machines."""
MACHINES = ("Compute", "Accelerator instances")
PURCHASES = ("commitment", "people", "extra")
"""Kinds that are bought for a term or once, and not by use."""
UNITS = {
    "instance-hour": "Instance-Hours",
    "GB-month": "GB-Months",
    "GB": "GB",
    "month": "Months",
    "run": "Runs",
    "once": "Units",
}
"""Unit of the ledger → as FOCUS writes units (attribute UnitFormat)."""


def render_focus(report: BudgetReport) -> str:
    """Return the ledger as CSV with the columns of FOCUS 1.2; null is an empty cell."""
    columns = _row(_empty_entry(report), report, {})
    return csv_text(columns, (row.values() for row in focus_rows(report)))


def focus_rows(report: BudgetReport) -> list[Row]:
    """Return a row for each of the ledger: column → value, None for null."""
    parts = _parts_without_price(report)
    return [_row(entry, report, parts) for entry in report.entries]


def _row(entry: Entry, report: BudgetReport, parts: Parts) -> Row:
    return {**_focus_columns(entry, report), **_own_columns(entry, report, parts)}


def _parts_without_price(report: BudgetReport) -> Parts:
    """Return what of each experiment has no known price in each month: names of its lines."""
    found: dict[tuple[str | None, Month], dict[str, None]] = {}
    for line in report.open_lines:
        found.setdefault((line.experiment, line.month), {})[line.name] = None
    return {key: "; ".join(names) for key, names in found.items()}


def _empty_entry(report: BudgetReport) -> Entry:
    """Return a row of nothing: a ledger without rows has a heading all the same."""
    fields = dict.fromkeys(Entry.model_fields)
    amounts = dict.fromkeys(("quantity", "unit_usd", "usd"), Decimal(0))
    texts = {"kind": "extra", "name": "", "unit": ""}
    month = {"month": report.project.start}
    return Entry.model_validate({**fields, **amounts, **texts, **month})


def _focus_columns(entry: Entry, report: BudgetReport) -> Row:
    """Return the columns of the specification."""
    is_tax = entry.kind == "tax"
    is_used = entry.kind not in ("tax", *PURCHASES)
    unit = None if is_tax else UNITS.get(entry.unit, entry.unit)
    quantity = None if is_tax else entry.quantity
    price = None if is_tax else entry.unit_usd
    # Not rounded: the product of price and quantity is to match it.
    exact = entry.usd if is_tax else entry.quantity * entry.unit_usd
    has_list = entry.list_unit_usd is not None
    # Tax has no unit price; its list cost is calculated from that of what it is on.
    listed = entry.list_usd.quantize(QUANTUM) if is_tax and has_list else entry.list_usd
    begin, end = _instant(entry.month), _instant(entry.month.plus(1))
    category, service = SERVICES.get(entry.kind, MACHINES)
    seller = entry.provider or report.project.team or report.project.owner or report.project.name
    return {
        "BilledCost": entry.usd,
        "BillingAccountId": f"forecast-{report.project.content_hash[:16]}",
        "BillingAccountName": report.project.name,
        "BillingCurrency": CURRENCY,
        "BillingPeriodEnd": end,
        "BillingPeriodStart": begin,
        "ChargeCategory": "Tax" if is_tax else "Usage" if is_used else "Purchase",
        "ChargeClass": None,
        "ChargeDescription": _description(entry),
        "ChargePeriodEnd": end,
        "ChargePeriodStart": begin,
        "ConsumedQuantity": quantity if is_used else None,
        "ConsumedUnit": unit if is_used else None,
        "ContractedCost": exact,
        "ContractedUnitPrice": price,
        "EffectiveCost": entry.usd,
        "InvoiceIssuerName": seller,
        "ListCost": listed if has_list else exact,
        "ListUnitPrice": entry.list_unit_usd if has_list and not is_tax else price,
        "PricingCategory": None if is_tax else _pricing(entry),
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "ProviderName": seller,
        "PublisherName": seller,
        "RegionId": entry.region,
        # The name by which machines are asked for there, which is what the catalogue has.
        "RegionName": entry.region,
        "ServiceCategory": category,
        "ServiceName": service,
    }


def _own_columns(entry: Entry, report: BudgetReport, parts: Parts) -> Row:
    """Return what is known of a forecast beyond the specification."""
    return {
        "x_RecordType": "forecast",
        "x_ForecastCreated": _in_utc(report.generated_at),
        "x_PriceSnapshotDate": str(report.snapshot_date),
        "x_ProjectName": report.project.name,
        "x_Experiment": entry.experiment,
        "x_Stage": entry.stage,
        "x_Owner": entry.owner,
        "x_Machine": entry.sku,
        "x_Accelerator": entry.accelerator,
        "x_CostKind": entry.kind,
        "x_CostLine": entry.name,
        "x_PartsWithoutPrice": parts.get((entry.experiment, entry.month)),
        "x_TotalIsLowerBound": "true" if report.is_lower_bound else "false",
    }


def _instant(month: Month) -> str:
    """Return the begin of a month as the attribute DateTimeFormat wants it: in UTC, with a Z."""
    return f"{month.first_day.isoformat()}T00:00:00Z"


def _in_utc(moment: str) -> str:
    """Return a moment as the attribute DateTimeFormat wants it."""
    in_utc = datetime.fromisoformat(moment).astimezone(UTC)
    return in_utc.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def _description(entry: Entry) -> str:
    what = " ".join(filter(None, (entry.name, entry.experiment and f"of {entry.experiment}")))
    on = f" on {entry.sku}" if entry.sku else ""
    return f"Forecast: {what}{on}, {entry.quantity:f} {entry.unit} at {entry.unit_usd:f} USD"


def _pricing(entry: Entry) -> str:
    """Return how the price comes about: Dynamic on the spot market, Committed for a term."""
    if entry.is_after_term:
        return "Standard"
    words = (entry.sku or "").lower().split()
    if "spot" in words:
        return "Dynamic"
    is_committed = any(word.startswith(("committed", "reserved")) for word in words)
    return "Committed" if is_committed and entry.kind != "commitment" else "Standard"
