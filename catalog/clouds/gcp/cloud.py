"""Google Cloud, asked through its client libraries: SKUs, machine types, quotas. Read-only."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ..asking import Patience, unanswered_by
from ..interface import (
    Answers,
    Asked,
    Availability,
    CalendarWindow,
    CloudError,
    Prices,
    Quota,
    Quotas,
    Reservations,
    Tell,
)
from .capacity import GcpCapacity
from .client import GcpClients
from .rows import calendar_usd_per_hour, machine_prices
from .skus import Sku, SkuPrices, read_skus

BILLING = "google.cloud.billing_v1"
COMPUTE_SERVICE = "services/6F81-5844-456A"
"""Compute Engine in the billing catalogue:
https://cloud.google.com/billing/v1/how-tos/catalog-api (2026-11-23)."""
NANO = Decimal(10) ** -9


class Gcp:
    """Google Cloud with the account of one project.

    Args:
        credentials: As google-auth makes them; None: the application default credentials.
        project: Its id; None: that of the environment or the credentials.
        patience: Time-outs and tries.
        api_endpoint: Where all services are, instead of Google.
    """

    name = "gcp"

    def __init__(
        self,
        credentials: Any = None,
        *,
        project: str | None = None,
        patience: Patience | None = None,
        api_endpoint: str | None = None,
    ) -> None:
        self._gcp = GcpClients(
            credentials, project=project, patience=patience, api_endpoint=api_endpoint
        )
        self._capacity = GcpCapacity(self._gcp)

    def offers(self, asked: Asked, tell: Tell) -> Prices:
        """Return the sums of the SKUs of each machine type, where it is offered."""
        found = Answers()
        parts = self._parts(tell)
        found.refused += parts.refused
        found.unmapped |= parts.unmapped
        places = asked.known_places
        try:
            zones = self._capacity.machine_zones(asked.instances.values(), tell)
            places = frozenset((zone.rsplit("-", 1)[0], name) for name, zone in zones)
        except CloudError as error:
            found.unanswered.append(unanswered_by(error, "zones"))
        wanted = {place for place in places if place[0] in set(asked.regions)}
        found.add(machine_prices(parts, asked.instances.values(), wanted, today=asked.now.date()))
        for region in asked.regions:
            found.answered |= {(region, "on-demand"), (region, "spot")}
        return found.prices()

    def availability(self, asked: Asked, tell: Tell) -> Availability:
        """Return the zones that offer each machine type, how likely spot is, and what is booked."""
        found = self._capacity.availability(asked, tell)
        if not any(one.starts for one in found.windows):
            return found
        try:
            parts = self._parts(tell)
        except CloudError as error:
            silent = (*found.unanswered, unanswered_by(error, "prices"))
            return found.model_copy(update={"unanswered": silent})
        windows = tuple(_priced(one, parts, asked) for one in found.windows)
        return found.model_copy(update={"windows": windows})

    def _parts(self, tell: Tell) -> SkuPrices:
        """Return the prices of the parts of machines."""
        tell("SKUs of Google Cloud", None, None)
        listed = self._gcp.all_of(
            BILLING,
            "CloudCatalogClient",
            "list_skus",
            "none: the billing catalogue is public to every account",
            {"parent": COMPUTE_SERVICE, "page_size": 5000},
        )
        return read_skus(map(_sku, listed))

    def quota(self, asked: Asked, tell: Tell) -> Quotas:
        """Return the quotas that count each machine type, and what of them is used."""
        return self._capacity.quota(asked, tell)

    def reservations(self, asked: Asked, tell: Tell) -> Reservations:
        """Return the reservations of the project that hold these machine types."""
        return self._capacity.reservations(asked, tell)

    def quota_command(self, quota: Quota, wanted: float) -> str:
        """Return the command that asks Google for a higher quota."""
        return self._capacity.quota_command(quota, wanted)


def _priced(window: CalendarWindow, parts: SkuPrices, asked: Asked) -> CalendarWindow:
    """Return a window with what it costs, where it has times and its SKUs have prices."""
    instance = asked.instances[window.instance_type]
    usd = calendar_usd_per_hour(parts, instance, window.region)
    if usd is None or window.starts is None or window.ends is None:
        return window
    hours = Decimal((window.ends - window.starts).total_seconds()) / 3600
    whole = (usd * window.instances * hours).quantize(Decimal("0.01"))
    return window.model_copy(update={"usd": whole})


def _sku(listed: Any) -> Sku:
    """Return what of a SKU of the client library counts here."""
    info = listed.pricing_info[0] if listed.pricing_info else None
    expression = info.pricing_expression if info else None
    rates = list(expression.tiered_rates) if expression else []
    # Tiers begin with free use; a price that needs a tier above it is the last one.
    rate = rates[-1] if rates else None
    usd = None
    if rate is not None:
        usd = Decimal(rate.unit_price.units) + Decimal(rate.unit_price.nanos) * NANO
    return Sku(
        description=listed.description,
        usage_type=listed.category.usage_type,
        resource_group=listed.category.resource_group,
        regions=tuple(listed.service_regions),
        unit=expression.usage_unit if expression else "",
        currency=rate.unit_price.currency_code if rate else "",
        usd=usd,
    )
