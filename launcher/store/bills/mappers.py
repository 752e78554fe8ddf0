"""The columns of FOCUS 1.x, AWS CUR 2.0 and Google Cloud billing → rows of one form.

Sources of the columns: FOCUS https://focus.finops.org/focus-specification/v1-2/ ; CUR 2.0
https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html ; Google Cloud
https://cloud.google.com/billing/docs/how-to/export-data-bigquery-tables/standard-usage
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NoReturn

from ....catalog.errors import UsageError
from ...labels import RUN_LABEL

LARGEST_USD = Decimal(10**12)
"""An amount above is no bill of anybody."""
BILL = "name the files that the provider exports of its bill."
FIX = "export it again: FOCUS 1.x, AWS CUR 2.0 (CSV) or Google Cloud billing (CSV, JSON)."

Cells = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class BillRow:
    """One charge of a bill."""

    provider: str
    account: str
    month: str
    """2027-03, of the bill where that says it, else of the charge's begin."""
    begins: str
    """ISO 8601."""
    run: str | None
    """The label of the launch; None where it has none."""
    billed_usd: Decimal
    list_usd: Decimal | None
    effective_usd: Decimal | None
    category: str
    """As FOCUS says it: Usage, Purchase, Tax, Credit, Adjustment."""
    service: str
    sku: str
    resource: str
    key: str
    """SHA-256 of all its cells: a row that is there twice has the same."""


Rates = Mapping[str, Decimal]
"""Currency → US dollars for one unit of it."""


@dataclass(frozen=True)
class Place:
    """Where in a file."""

    path: Path
    line: int


def refuse(place: Place, said: str, fix: str = FIX) -> NoReturn:
    """Raise a `UsageError` that names the file and its line."""
    raise UsageError(f"{place.path}:{place.line}: {said}.", fix=fix) from None


def mapper_of(cells: Cells, place: Place) -> Callable[[Cells, Place, Rates], BillRow]:
    """Return what reads the rows of a file, known by its columns."""
    names = set(cells)
    if {"BilledCost", "ChargePeriodStart"} <= names:
        return _of_focus
    if {"line_item_unblended_cost", "line_item_usage_start_date"} <= names:
        return _of_cur
    if {"cost", "usage_start_time"} <= names:
        return _of_google
    refuse(
        place,
        "its columns are of no bill that is known:"
        " BilledCost, line_item_unblended_cost or cost is missing, or the begin of the charge",
    )


def _of_focus(cells: Cells, place: Place, rates: Rates) -> BillRow:
    if _text(cells, "x_RecordType") == "forecast":
        refuse(place, "it is a forecast (`gpuplan report --format focus`), and no charge", BILL)
    rate = _rate(_text(cells, "BillingCurrency") or "USD", place, rates)
    provider = _text(cells, "ProviderName", "ServiceProviderName", "PublisherName")
    return _row(
        cells,
        place,
        provider=provider,
        account=_text(cells, "SubAccountId", "BillingAccountId"),
        begins=_text(cells, "ChargePeriodStart"),
        period=_text(cells, "BillingPeriodStart"),
        run=_run(cells, ("Tags",), place),
        billed_usd=_usd(cells, "BilledCost", place, rate),
        list_usd=_usd_or_none(cells, "ListCost", place, rate),
        effective_usd=_usd_or_none(cells, "EffectiveCost", place, rate),
        category=_text(cells, "ChargeCategory") or "Usage",
        service=_text(cells, "ServiceName"),
        sku=_text(cells, "SkuId"),
        resource=_text(cells, "ResourceId"),
    )


CUR_CATEGORIES = {
    "Tax": "Tax",
    "Credit": "Credit",
    "Refund": "Credit",
    "Fee": "Purchase",
    "RIFee": "Purchase",
    "SavingsPlanUpfrontFee": "Purchase",
    "SavingsPlanRecurringFee": "Purchase",
    "SavingsPlanNegation": "Adjustment",
    "BundledDiscount": "Adjustment",
    "EdpDiscount": "Adjustment",
    "PrivateRateDiscount": "Adjustment",
    "RiVolumeDiscount": "Adjustment",
    "Discount": "Adjustment",
}
"""What is no usage, and has no list price of its own, by the kind of a line."""
CUR_EFFECTIVE = {
    "SavingsPlanCoveredUsage": "savings_plan_savings_plan_effective_cost",
    "DiscountedUsage": "reservation_effective_cost",
}
"""Columns that hold what usage costs with its share of what was paid ahead."""


def _of_cur(cells: Cells, place: Place, rates: Rates) -> BillRow:
    rate = _rate(_text(cells, "line_item_currency_code") or "USD", place, rates)
    kind = _text(cells, "line_item_line_item_type")
    effective = CUR_EFFECTIVE.get(kind, "line_item_unblended_cost")
    effective_usd = _usd_or_none(cells, effective, place, rate)
    if kind == "SavingsPlanNegation":
        # It takes back the price on demand of usage whose effective cost does not hold that price.
        effective_usd = Decimal(0)
    return _row(
        cells,
        place,
        provider="aws",
        account=_text(cells, "line_item_usage_account_id"),
        begins=_text(cells, "line_item_usage_start_date"),
        period=_text(cells, "bill_billing_period_start_date"),
        run=_run(cells, ("resource_tags", "tags"), place),
        billed_usd=_usd(cells, "line_item_unblended_cost", place, rate),
        list_usd=_usd_or_none(cells, "pricing_public_on_demand_cost", place, rate),
        effective_usd=effective_usd,
        category=CUR_CATEGORIES.get(kind, "Usage"),
        service=_text(cells, "line_item_product_code"),
        sku=_text(cells, "line_item_usage_type"),
        resource=_text(cells, "line_item_resource_id"),
    )


GOOGLE_CATEGORIES = {"tax": "Tax", "adjustment": "Adjustment", "rounding_error": "Adjustment"}


def _of_google(cells: Cells, place: Place, rates: Rates) -> BillRow:
    rate = _rate(_text(cells, "currency") or "USD", place, rates)
    cost = _usd(cells, "cost", place, rate)
    credits = _parsed(cells.get("credits"), place) or []
    if not isinstance(credits, list) or not all(isinstance(one, dict) for one in credits):
        refuse(place, "credits is no list")
    off = sum((_usd(one, "amount", place, rate) for one in credits), Decimal(0))
    return _row(
        cells,
        place,
        provider="gcp",
        account=_text(cells, "project.id", "project_id") or _text(cells, "billing_account_id"),
        begins=_text(cells, "usage_start_time"),
        period=_text(cells, "invoice.month", "invoice_month"),
        run=_run(cells, ("labels", "system_labels"), place),
        billed_usd=cost + off,
        list_usd=_usd_or_none(cells, "cost_at_list", place, rate),
        effective_usd=cost + off,
        category=GOOGLE_CATEGORIES.get(_text(cells, "cost_type"), "Usage"),
        service=_text(cells, "service.description", "service_description"),
        sku=_text(cells, "sku.id", "sku_id"),
        resource=_text(cells, "resource.name", "resource_name"),
    )


def _row(
    cells: Cells, place: Place, *, provider: str, begins: str, period: str, **facts: Any
) -> BillRow:
    """Return a row with its month, its provider as the catalogue names it, and its key.

    Args:
        cells: of the file.
        place: where they stand.
        provider: as the bill names it.
        begins: when the charge begins.
        period: the month that the bill is of, as it says it; empty: that of the begin. A bill may
            hold charges that began in an earlier month, and replaces none of that month's.
        facts: the other fields.
    """
    moment = _moment(begins, place)
    if re.fullmatch(r"\d{6}", period):
        period = f"{period[:4]}-{period[4:]}-01"
    month = _moment(period, place) if period else moment
    text = json.dumps(cells, sort_keys=True, default=str)
    return BillRow(
        provider=PROVIDERS.get(provider.strip().lower(), provider.strip().lower()),
        month=f"{month:%Y-%m}",
        begins=moment.isoformat(),
        key=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        **facts,
    )


def _moment(text: str, place: Place) -> datetime:
    try:
        return datetime.fromisoformat(text.strip().removesuffix(" UTC").replace("Z", "+00:00"))
    except ValueError:
        refuse(place, f"{text[:40]!r} is no time at which a charge begins")


PROVIDERS = {
    "amazon web services": "aws",
    "aws": "aws",
    "google cloud": "gcp",
    "google cloud platform": "gcp",
    "google": "gcp",
    "microsoft": "azure",
    "microsoft azure": "azure",
    "oracle": "oci",
    "oracle cloud infrastructure": "oci",
}
"""Names in bills → names of the catalogue; others are taken in lower case."""


def _text(cells: Cells, *names: str) -> str:
    """Return the first of these columns that holds something; a dot goes into an object."""
    for name in names:
        value: Any = cells.get(name)
        if value is None and "." in name:
            outer, _, inner = name.partition(".")
            held = cells.get(outer)
            value = held.get(inner) if isinstance(held, dict) else None
        if value is not None and str(value).strip():
            return str(value).strip()
    return ""


def _usd(cells: Cells, name: str, place: Place, rate: Decimal) -> Decimal:
    found = _usd_or_none(cells, name, place, rate)
    if found is None:
        refuse(place, f"{name} is empty")
    return found


def _usd_or_none(cells: Cells, name: str, place: Place, rate: Decimal) -> Decimal | None:
    text = _text(cells, name)
    if not text:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("nan")
    if not amount.is_finite() or abs(amount) > LARGEST_USD:
        refuse(place, f"{name} is {text[:40]!r}, no amount of money")
    return amount * rate


def _rate(currency: str, place: Place, rates: Rates) -> Decimal:
    code = currency.upper()
    if code == "USD":
        return Decimal(1)
    if code not in rates:
        refuse(
            place,
            f"the bill is in {code[:10]}, and gpuplan counts in US dollars",
            fix=f"give what one {code[:10]} is worth: --rate {code[:10]}=1.08.",
        )
    return rates[code]


def _run(cells: Cells, columns: tuple[str, ...], place: Place) -> str | None:
    """Return the label of the launch, among tags in JSON or in columns of their own."""
    for name in columns:
        for key, value in _tags(_parsed(cells.get(name), place)):
            if _is_run(key) and value:
                return str(value).strip().lower()
    for name, value in cells.items():
        column = next((one for one in columns if name.startswith(one)), None)
        if column is not None and value and _is_run(name[len(column) :].lstrip("_./")):
            return str(value).strip().lower()
    return None


def _tags(found: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tags of an object, or of a list of objects with key and value."""
    if isinstance(found, dict):
        yield from ((str(key), value) for key, value in found.items())
    elif isinstance(found, list):
        for one in found:
            if isinstance(one, dict) and "key" in one:
                yield str(one["key"]), one.get("value")


def _is_run(key: str) -> bool:
    """Return whether a tag is our label; bills write `user:gpuplan-run` or `user_gpuplan_run`."""
    return re.sub(r"[^a-z0-9]+", "-", key.lower()).removeprefix("user-") == RUN_LABEL


def _parsed(value: Any, place: Place) -> Any:
    """Return what a cell with JSON holds; None for an empty one."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        refuse(place, f"{value[:40]!r} is no JSON of tags")
