"""Azure: the public price list, and its libraries for what an account may use. Read-only."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable
from datetime import date
from typing import Any, TypeVar

from ...types import CommitmentRow
from ..asking import Patience, ask_everywhere, asked_again, unanswered_by
from ..interface import (
    Answers,
    Asked,
    Availability,
    CloudError,
    PriceRow,
    Prices,
    Quota,
    Quotas,
    Refused,
    Reservations,
    Tell,
    Unanswered,
    Zones,
)
from .client import default_credential, library, limits, meaning
from .evictions import eviction_records, evictions_query, read_evictions
from .prices import PRICES_URL, AzurePrices
from .reserved import held_by_subscription
from .rows import read_retail_prices

T = TypeVar("T")

SUBSCRIPTION_VARIABLE = "AZURE_SUBSCRIPTION_ID"
SPOT_QUOTA = "lowPriorityCores"
"""One quota of a region counts the spot vCPUs of all families:
https://learn.microsoft.com/azure/quotas/spot-quota (2026-11-23)."""
SKUS_PERMISSION = "Microsoft.Compute/skus/read"
USAGES_PERMISSION = "Microsoft.Compute/locations/usages/read"


class Azure:
    """Azure with the account of one subscription; its prices need none.

    Args:
        credential: As azure-identity makes them; None: `DefaultAzureCredential`.
        subscription: Its id; None: AZURE_SUBSCRIPTION_ID.
        patience: Time-outs and tries.
        base_url: Where the management service is, instead of Azure.
        prices_url: Where the price list is, instead of Azure.
        authentication_policy: How requests are signed; None: as azure-identity does it.
    """

    name = "azure"

    def __init__(
        self,
        credential: Any = None,
        *,
        subscription: str | None = None,
        patience: Patience | None = None,
        base_url: str | None = None,
        prices_url: str = PRICES_URL,
        authentication_policy: Any = None,
    ) -> None:
        self._patience = patience or Patience()
        self._prices = AzurePrices(prices_url, self._patience)
        self._subscription = subscription or os.environ.get(SUBSCRIPTION_VARIABLE)
        self._credential = credential
        self._options = {"base_url": base_url, "authentication_policy": authentication_policy}
        self._lock = threading.Lock()
        self._made: Any = None
        self._graph: Any = None

    def offers(self, asked: Asked, tell: Tell) -> Prices:
        """Return prices of the public list, and how often spot machines are taken away."""
        today = asked.now.date()
        found = Answers()

        def of_type(name: str) -> list[PriceRow | CommitmentRow | Refused]:
            return list(read_retail_prices(self._prices.of(name), today=today))

        answers, silent = ask_everywhere(
            asked.instances,
            of_type,
            question="prices",
            what="prices of Azure",
            patience=self._patience,
            tell=tell,
        )
        if silent and not answers:
            raise CloudError(silent[0].why, permission=silent[0].permission)
        regions = set(asked.regions)
        for readings in answers.values():
            found.add(one for one in readings if one.region in regions or not one.region)
        found.unanswered += [
            one.model_copy(update={"region": None, "why": f"{one.region}: {one.why}"})
            for one in silent
        ]
        if not silent:
            for region in asked.regions:
                found.answered |= {(region, "on-demand"), (region, "spot")}
        self._evictions(asked, found, today, tell)
        return found.prices()

    def _evictions(self, asked: Asked, found: Answers, today: date, tell: Tell) -> None:
        """Add the eviction rates; without an account, prices are answered all the same."""
        tell("eviction rates of Azure", None, None)
        try:
            query = evictions_query(asked.instances)
            records = list(eviction_records(self._graph_client(), query, self._patience))
        except CloudError as error:
            found.unanswered.append(unanswered_by(error, "evictions"))
            return
        regions = set(asked.regions)
        readings = read_evictions(records, asked.instances, today=today)
        found.add(one for one in readings if one.region in regions or not one.region)

    def availability(self, asked: Asked, tell: Tell) -> Availability:
        """Return the zones that offer each size, and what keeps this subscription from them."""

        def of_region(region: str) -> list[Zones]:
            skus = self._skus(region)
            return [_zones(region, name, skus.get(name)) for name in asked.instances]

        answers, silent = self._everywhere(asked, of_region, "zones", "sizes of Azure", tell)
        return Availability(
            zones=tuple(one for found in answers.values() for one in found),
            unanswered=tuple(silent),
        )

    def quota(self, asked: Asked, tell: Tell) -> Quotas:
        """Return the vCPU quotas that count each size, and what of them is used."""

        def of_region(region: str) -> tuple[list[Quota], list[Unanswered]]:
            return self._quotas_of(region, asked)

        answers, silent = self._everywhere(asked, of_region, "quota", "quotas of Azure", tell)
        return Quotas(
            quotas=tuple(one for found, _ in answers.values() for one in found),
            unanswered=(*silent, *(one for _, more in answers.values() for one in more)),
        )

    def _quotas_of(self, region: str, asked: Asked) -> tuple[list[Quota], list[Unanswered]]:
        skus = self._skus(region)
        usages = {
            one.name.value: one
            for one in self._all(
                lambda: self._client().usage.list(region, **limits(self._patience)),
                USAGES_PERMISSION,
            )
        }
        found, unanswered = [], []
        for name in asked.instances:
            sku = skus.get(name)
            code = SPOT_QUOTA if asked.purchase == "spot" else sku and sku.family
            usage = usages.get(code or "")
            vcpus = None if sku is None else _capability(sku, "vCPUs")
            if usage is None or vcpus is None:
                why = (
                    f"{name} is not offered there" if sku is None else f"no quota {code} is listed"
                )
                unanswered.append(
                    Unanswered(question="quota", region=region, instance_type=name, why=why)
                )
                continue
            found.append(
                Quota(
                    region=region,
                    instance_type=name,
                    purchase=asked.purchase,
                    name=usage.name.localized_value or usage.name.value,
                    code=usage.name.value,
                    unit="vCPU",
                    limit=float(usage.limit),
                    used=float(usage.current_value),
                    per_instance=vcpus,
                )
            )
        return found, unanswered

    def reservations(self, asked: Asked, tell: Tell) -> Reservations:
        """Return the capacity reservations of the subscription, and what of them is free."""
        try:
            client = self._client()
            return held_by_subscription(client, self._all, asked, self._patience, tell)
        except CloudError as error:
            return Reservations(unanswered=(unanswered_by(error, "held"),))

    def quota_command(self, quota: Quota, wanted: float) -> str:
        """Return the command that asks Azure for a higher quota."""
        scope = (
            f"/subscriptions/{self._subscription or 'SUBSCRIPTION'}"
            f"/providers/Microsoft.Compute/locations/{quota.region}"
        )
        kind = "lowPriority" if quota.code == SPOT_QUOTA else "dedicated"
        return shlex.join(
            [
                *("az", "quota", "update", "--resource-name", quota.code, "--scope", scope),
                *("--limit-object", f"value={wanted:g}", "limit-object-type=LimitValue"),
                *("--resource-type", kind),
            ]
        )

    def _everywhere(
        self,
        asked: Asked,
        ask: Callable[[str], T],
        question: Any,
        what: str,
        tell: Tell,
    ) -> tuple[dict[str, T], list[Unanswered]]:
        self._client()  # Without credentials, one error and not one for each region.
        return ask_everywhere(
            asked.regions,
            ask,
            question=question,
            what=what,
            patience=self._patience,
            tell=tell,
        )

    def _skus(self, region: str) -> dict[str, Any]:
        chosen = f"location eq '{region}'"
        return {
            one.name: one
            for one in self._all(
                lambda: self._client().resource_skus.list(filter=chosen, **limits(self._patience)),
                SKUS_PERMISSION,
            )
            if one.resource_type == "virtualMachines"
        }

    def _all(self, ask: Callable[[], Any], permission: str) -> list[Any]:
        """Return every item of every page that a request answers."""

        def read() -> list[Any]:
            with meaning(permission):
                return list(ask())

        return asked_again(read, self._patience)

    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                credential, given = self._signed()
                self._made = library("azure.mgmt.compute").ComputeManagementClient(
                    credential, self._subscription, **given
                )
            return self._made

    def _graph_client(self) -> Any:
        with self._lock:
            if self._graph is None:
                # Of the whole tenant; the subscription says that there is an account to look for.
                credential, given = self._signed()
                module = library("azure.mgmt.resourcegraph")
                self._graph = module.ResourceGraphClient(credential, **given)
            return self._graph

    def _signed(self) -> tuple[Any, dict[str, Any]]:
        """Return the credential, and what else a client is made with."""
        if self._subscription is None:
            raise CloudError("no Azure subscription is named", fix=f"set {SUBSCRIPTION_VARIABLE}.")
        if self._credential is None and self._options["authentication_policy"] is None:
            self._credential = default_credential()
        return self._credential, {k: one for k, one in self._options.items() if one is not None}


def _zones(region: str, name: str, sku: Any) -> Zones:
    """Return where a size is offered; a region without zones counts as one."""
    if sku is None:
        return Zones(region=region, instance_type=name, zones=())
    places = [one for one in sku.location_info or () if (one.location or "").lower() == region]
    zones = sorted({zone for place in places for zone in place.zones or ()})
    restricted = None
    for one in sku.restrictions or ():
        kind = str(getattr(one.type, "value", one.type))
        reason = str(getattr(one.reason_code, "value", one.reason_code))
        if kind == "Location":
            restricted = f"restricted: {reason}"
        elif kind == "Zone" and one.restriction_info is not None:
            closed = set(one.restriction_info.zones or ())
            zones = [zone for zone in zones if zone not in closed]
    return Zones(
        region=region, instance_type=name, zones=tuple(zones) or (region,), restricted=restricted
    )


def _capability(sku: Any, name: str) -> float | None:
    for one in sku.capabilities or ():
        if one.name == name:
            try:
                return float(one.value)
            except ValueError:
                return None
    return None
