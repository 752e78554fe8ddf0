"""Rows of Azure's public price list → prices, or the named rule that refuses them. Pure.

The shape of a row:
https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices (2026-11-23).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

from ..text.money_cells import decimal_of
from ..vocabulary import OfferPurchase
from .interface import PriceRow, Refused

PROVIDER = "azure"
SOURCE = "Azure Retail Prices API"

WINDOWS_RULE = "azure-windows"
LOW_PRIORITY_RULE = "azure-low-priority"
"""Low Priority is another, older product of scale sets, sold beside Spot at its own price."""
TYPE_RULE = "azure-price-type"
"""DevTestConsumption is for subscribers of Visual Studio alone, Reservation is paid for years."""
PLACEHOLDER_RULE = "azure-placeholder"
"""A meter that is announced but not sold yet costs $0."""
TIER_RULE = "azure-tier"
"""`tierMinimumUnits` is a number with decimals (0.0); above it, a price is not the first hour's."""
UNIT_RULE = "azure-unit"
SERVICE_RULE = "azure-other-service"
"""Cloud Services and Dedicated Hosts have meters with the names of machines, too."""


def read_retail_prices(
    items: Iterable[Mapping[str, Any]], *, today: date
) -> Iterator[PriceRow | Refused]:
    """Yield the on-demand or spot price of each row, or why it is not taken."""
    for item in items:
        yield _row_of(item, today)


def _row_of(item: Mapping[str, Any], today: date) -> PriceRow | Refused:
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


def _not_wanted(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the rule that refuses a row before its price is looked at, and why."""
    product, sku = str(item.get("productName", "")), str(item.get("skuName", ""))
    if item.get("type") != "Consumption":
        return TYPE_RULE, f"type is {item.get('type')}, not Consumption"
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
