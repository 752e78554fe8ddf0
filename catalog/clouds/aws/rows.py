"""Rows of AWS's price list and spot history → prices, or the named rule that refuses them. Pure.

The shape of a row: https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-an-offer.html
and https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html
(2026-11-23).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from ...text.money_cells import decimal_of
from ..interface import PriceRow, Refused

PROVIDER = "aws"
SOURCE = "AWS Price List API (pricing:GetProducts)"
SPOT_SOURCE = "EC2 DescribeSpotPriceHistory"
SPOT_PRODUCT = "Linux/UNIX"
ON_DEMAND_TERM = "JRTCKXETXF"
"""The offer term code of on-demand prices, the same for every product of AWS."""

WANTED_ATTRIBUTES: dict[str, tuple[str, str]] = {
    "capacitystatus": (
        "Used",
        "aws-capacity-status",
    ),
    "operatingSystem": ("Linux", "aws-operating-system"),
    "preInstalledSw": ("NA", "aws-pre-installed-software"),
    "tenancy": ("Shared", "aws-tenancy"),
    "locationType": ("AWS Region", "aws-not-a-region"),
    "marketoption": ("OnDemand", "aws-market-option"),
}
"""What a row must say to be the on-demand price of a Linux machine, and the rule if it does not.

Rows of reservations are listed at $0: AllocatedCapacityReservation is paid as a machine, and
UnusedCapacityReservation is a machine that nobody started. Windows, SQL Server, dedicated hosts and
Local Zones have prices of their own under the same instance type.
"""
REGION_CODE_RULE = "aws-region-name"
"""`location` is a long name that AWS has changed before ("EU (Ireland)", "Europe (Ireland)"): only
`regionCode` says which region a row is of."""
NO_ON_DEMAND_TERM_RULE = "aws-no-on-demand-term"
"""Types that are sold in capacity blocks alone have no hourly price; what a block costs is asked
for with `gpuplan capacity`."""
UNIT_RULE = "aws-unit"


def read_price_list(
    items: Iterable[str], *, region: str | None = None, today: date
) -> Iterator[PriceRow | Refused]:
    """Yield the on-demand price of each row, or why it is not taken.

    Args:
        items: Rows as the service sends them: each a JSON text of its own.
        region: Of which region they were asked for; None: of any.
        today: When they were read.
    """
    for item in items:
        try:
            row = json.loads(item)
        except ValueError:
            yield Refused(
                rule="not-json",
                provider=PROVIDER,
                region=region,
                what="a row of the price list",
                why="it is cut off or no JSON",
            )
            continue
        yield _row_of(row, today)


def _row_of(row: Mapping[str, Any], today: date) -> PriceRow | Refused:
    attributes: Mapping[str, Any] = row.get("product", {}).get("attributes", {})
    instance_type = str(attributes.get("instanceType") or "?")
    region = attributes.get("regionCode")

    def refused(rule: str, why: str) -> Refused:
        return Refused(rule=rule, provider=PROVIDER, region=region, what=instance_type, why=why)

    for name, (wanted, rule) in WANTED_ATTRIBUTES.items():
        if attributes.get(name, wanted) != wanted:
            return refused(rule, f"{name} is {attributes[name]}, not {wanted}")
    if not region:
        return refused(REGION_CODE_RULE, f"no regionCode, only {attributes.get('location')!r}")
    dimensions = [
        dimension
        for term in row.get("terms", {}).get("OnDemand", {}).values()
        if term.get("offerTermCode", ON_DEMAND_TERM) == ON_DEMAND_TERM
        for dimension in term.get("priceDimensions", {}).values()
    ]
    if len(dimensions) != 1:
        return refused(NO_ON_DEMAND_TERM_RULE, f"{len(dimensions)} on-demand prices")
    [dimension] = dimensions
    if dimension.get("unit") not in ("Hrs", "Hours"):
        return refused(UNIT_RULE, f"the unit is {dimension.get('unit')!r}, not hours")
    price = dimension.get("pricePerUnit", {})
    if "USD" not in price:
        return refused("currency", f"the currency is {', '.join(price) or 'not stated'}")
    usd = decimal_of(price["USD"])
    if usd is None:
        return refused("not-a-number", f"the price is {price['USD']!r}")
    return PriceRow(
        provider=PROVIDER,
        region=region,
        instance_type=instance_type,
        purchase="on-demand",
        usd_per_hour=usd,
        price_date=today,
        source=SOURCE,
    )


def read_spot_history(
    entries: Iterable[Mapping[str, Any]], *, region: str, today: date
) -> Iterator[PriceRow | Refused]:
    """Yield the newest spot price of the cheapest zone, for each instance type.

    The history holds one entry for each change, in each zone; its order is not promised.
    """
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for entry in entries:
        if entry.get("ProductDescription") != SPOT_PRODUCT:
            yield Refused(
                rule="aws-operating-system",
                provider=PROVIDER,
                region=region,
                what=str(entry.get("InstanceType")),
                why=f"spot of {entry.get('ProductDescription')}, not {SPOT_PRODUCT}",
            )
            continue
        key = (entry["InstanceType"], entry.get("AvailabilityZone", region))
        if key not in newest or entry["Timestamp"] > newest[key]["Timestamp"]:
            newest[key] = entry
    by_type: dict[str, list[tuple[Decimal, str]]] = {}
    for (instance_type, zone), entry in newest.items():
        usd = decimal_of(entry.get("SpotPrice"))
        if usd is None:
            yield Refused(
                rule="not-a-number",
                provider=PROVIDER,
                region=region,
                what=instance_type,
                why=f"the spot price in {zone} is {entry.get('SpotPrice')!r}",
            )
            continue
        by_type.setdefault(instance_type, []).append((usd, zone))
    for instance_type, prices in sorted(by_type.items()):
        usd, zone = min(prices)
        highest, _ = max(prices)
        yield PriceRow(
            provider=PROVIDER,
            region=region,
            instance_type=instance_type,
            purchase="spot",
            usd_per_hour=usd,
            price_date=today,
            source=SPOT_SOURCE,
            note=f"spot in {zone}; up to ${highest} in other zones" if highest > usd else None,
        )
