"""Rows of Azure's public price list → prices, or the named rule that refuses them. Pure.

The shape of a row:
https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices (2026-11-23).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from ...text.money_cells import decimal_of
from ...types import CommitmentRow
from ...units import HOURS_PER_YEAR
from ...vocabulary import OfferPurchase
from ..interface import PriceRow, Refused

PROVIDER = "azure"
SOURCE = "Azure Retail Prices API"
MICRO_USD = Decimal("0.000001")

WINDOWS_RULE = "azure-windows"
LOW_PRIORITY_RULE = "azure-low-priority"
"""Low Priority is another, older product of scale sets, sold beside Spot at its own price."""
TYPE_RULE = "azure-price-type"
"""DevTestConsumption is for subscribers of Visual Studio alone."""
TERM_RULE = "azure-reservation-term"
"""A reservation of other terms than one and three years, or of none."""
YEARS = {"1 Year": 1, "3 Years": 3}
RESERVATION = "Reservation"
RESERVATION_SOURCE = "Azure Retail Prices API (a reservation's price of the whole term ÷ its hours)"
SAVINGS_RULE = "azure-savings-plan"
"""A rate of a savings plan for another term than one and three years, or for none."""
SAVINGS_SOURCE = "Azure Retail Prices API (savings plan for compute)"
PLACEHOLDER_RULE = "azure-placeholder"
"""A meter that is announced but not sold yet costs $0."""
TIER_RULE = "azure-tier"
"""`tierMinimumUnits` is a number with decimals (0.0); above it, a price is not the first hour's."""
UNIT_RULE = "azure-unit"
SERVICE_RULE = "azure-other-service"
"""Cloud Services and Dedicated Hosts have meters with the names of machines, too."""


def read_retail_prices(
    items: Iterable[Mapping[str, Any]], *, today: date
) -> Iterator[PriceRow | CommitmentRow | Refused]:
    """Yield the prices of each row: on demand, spot, reserved, by plan; or why none is taken."""
    for item in items:
        row = _row_of(item, today)
        yield row
        if isinstance(row, PriceRow) and row.purchase == "on-demand":
            for rate in item.get("savingsPlan") or ():
                yield _saved(row, rate)


def _row_of(item: Mapping[str, Any], today: date) -> PriceRow | CommitmentRow | Refused:
    instance_type = str(item.get("armSkuName") or item.get("skuName") or "?")
    region = item.get("armRegionName")

    def refused(rule: str, why: str) -> Refused:
        return Refused(rule=rule, provider=PROVIDER, region=region, what=instance_type, why=why)

    why_not = _not_wanted(item)
    if why_not is not None:
        return refused(*why_not)
    if not region or not item.get("armSkuName"):
        return refused("no-place", "no armRegionName or no armSkuName")
    usd = decimal_of(item.get("retailPrice"))
    if usd is None:
        return refused("not-a-number", f"the price is {item.get('retailPrice')!r}")
    if usd == 0:
        return refused(PLACEHOLDER_RULE, f"meter {item.get('meterName')} costs $0")
    if item.get("type") == RESERVATION:
        return _reserved(str(region), instance_type, str(item.get("reservationTerm")), usd, today)
    purchase: OfferPurchase = (
        "spot" if str(item.get("skuName", "")).endswith(" Spot") else "on-demand"
    )
    return PriceRow(
        provider=PROVIDER,
        region=region,
        instance_type=instance_type,
        purchase=purchase,
        usd_per_hour=usd,
        price_date=today,
        source=SOURCE,
    )


def _reserved(
    region: str, instance_type: str, term: str, usd: Decimal, today: date
) -> CommitmentRow | Refused:
    """Return the price of an hour of a reservation, whose row has that of its whole term.

    The unit of such a row is "1 Hour" all the same:
    https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices#api-response-examples
    """
    years = YEARS.get(term)
    if years is None:
        why = f"the term is {term}"
        return Refused(
            rule=TERM_RULE, provider=PROVIDER, region=region, what=instance_type, why=why
        )
    return CommitmentRow(
        provider=PROVIDER,
        region=region,
        instance_type=instance_type,
        term_years=years,
        usd_per_hour=(usd / (years * HOURS_PER_YEAR)).quantize(MICRO_USD),
        price_date=today,
        source=RESERVATION_SOURCE,
    )


def _saved(row: PriceRow, rate: Any) -> CommitmentRow | Refused:
    """Return the price of an hour by a savings plan, which stands in the machine's own row."""

    def refused(rule: str, why: str) -> Refused:
        return Refused(
            rule=rule, provider=PROVIDER, region=row.region, what=row.instance_type, why=why
        )

    term = rate.get("term") if isinstance(rate, Mapping) else None
    years = YEARS.get(str(term))
    if years is None:
        return refused(SAVINGS_RULE, f"the term of the plan is {term}")
    usd = decimal_of(rate.get("retailPrice"))
    if usd is None:
        return refused("not-a-number", f"the rate of the plan is {rate.get('retailPrice')!r}")
    if usd == 0:
        return refused(PLACEHOLDER_RULE, f"a plan of {term} costs $0")
    return CommitmentRow(
        provider=PROVIDER,
        region=row.region,
        instance_type=row.instance_type,
        term_years=years,
        usd_per_hour=usd,
        price_date=row.price_date,
        source=SAVINGS_SOURCE,
    )


def _not_wanted(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the rule that refuses a row before its price is looked at, and why."""
    product, sku = str(item.get("productName", "")), str(item.get("skuName", ""))
    if item.get("type") not in ("Consumption", RESERVATION):
        return TYPE_RULE, f"type is {item.get('type')}, not Consumption or {RESERVATION}"
    if item.get("serviceName") != "Virtual Machines" or "Dedicated Host" in product:
        return SERVICE_RULE, f"{item.get('serviceName')}: {product}"
    if "Cloud Services" in product or "CloudServices" in product:
        return SERVICE_RULE, product
    if product.endswith(" Windows"):
        return WINDOWS_RULE, product
    if sku.endswith(" Low Priority"):
        return LOW_PRIORITY_RULE, sku
    if item.get("currencyCode") != "USD":
        # Rounded to two decimals in other currencies, a small price is 0.
        return "currency", f"the currency is {item.get('currencyCode')}"
    if item.get("unitOfMeasure") != "1 Hour":
        return UNIT_RULE, f"the unit is {item.get('unitOfMeasure')!r}"
    tier = decimal_of(item.get("tierMinimumUnits", 0))
    if tier is None or tier != 0:
        return TIER_RULE, f"from {item.get('tierMinimumUnits')} units"
    return None
