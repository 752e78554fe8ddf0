"""Azure as its client library and the price list's readers see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs

from .server import Answer, Request, as_json

PAGE = 3
SUBSCRIPTION = "00000000-0000-0000-0000-00000000cafe"
CANARY_TOKEN = "eyJcanarytokencanarytokencanarytoken"
GRAPH_PATH = "/providers/Microsoft.ResourceGraph/resources"
GROUPS_PATH = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/research/providers/Microsoft.Compute"
    "/capacityReservationGroups"
)
SIZE = "Standard_ND96isr_H100_v5"


def policy() -> Any:
    """How requests are signed: with a token that must not be seen anywhere."""
    policies: Any = import_module("azure.core.pipeline.policies")

    class Signed(policies.SansIOHTTPPolicy):
        def on_request(self, request: Any) -> None:
            request.http_request.headers["Authorization"] = f"Bearer {CANARY_TOKEN}"

    return Signed()


def meter(usd: float, region: str = "eastus", **changes: Any) -> dict[str, Any]:
    """A row of the price list, in the documented shape.

    https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
    """
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": usd,
        "unitPrice": usd,
        "armRegionName": region,
        "location": "US East",
        "effectiveStartDate": "2023-08-01T00:00:00Z",
        "meterName": "ND96isr H100 v5",
        "productName": "Virtual Machines NDsr H100 v5 Series",
        "skuName": "Standard_ND96isr_H100_v5",
        "serviceName": "Virtual Machines",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": SIZE,
        **changes,
    }


def eviction(band: str, region: str, size: str = SIZE.lower()) -> dict[str, Any]:
    """A row of Resource Graph's answer, as the query projects it.

    https://learn.microsoft.com/azure/virtual-machines/spot-vms#azure-resource-graph
    https://learn.microsoft.com/rest/api/azureresourcegraph/resourcegraph/resources/resources
    """
    return {"skuName": size, "location": region, "evictionRate": band}


def reserved(name: str, capacity: int, used: int, size: str = SIZE) -> dict[str, Any]:
    """A capacity reservation, in the documented shape.

    https://learn.microsoft.com/rest/api/compute/capacity-reservations/get
    """
    machines = [{"id": f"/subscriptions/{SUBSCRIPTION}/vm{one}"} for one in range(used)]
    use = {"currentCapacity": capacity, "virtualMachinesAllocated": machines}
    return {
        "name": name,
        "sku": {"name": size, "capacity": capacity},
        "zones": ["1"],
        "properties": {
            "provisioningState": "Succeeded",
            "instanceView": {"utilizationInfo": use, "statuses": []},
        },
    }


class AzureWorld:
    """What the fake Azure has; tests change it."""

    def __init__(self) -> None:
        self.meters = [
            meter(98.32),
            meter(98.32, "westus3"),
            meter(21.5, skuName="ND96isr H100 v5 Spot", meterName="ND96isr H100 v5 Spot"),
            meter(551_880.0, type="Reservation", reservationTerm="1 Year"),
            meter(102.7, productName="Virtual Machines NDsr H100 v5 Series Windows"),
        ]
        self.usages = {
            "eastus": {"standardNDSH100v5Family": (96, 192), "lowPriorityCores": (0, 96)},
            "westus3": {"standardNDSH100v5Family": (0, 0), "lowPriorityCores": (0, 0)},
        }
        self.evictions = [
            eviction("15-20", "eastus"),
            eviction("0-5", "westus3"),
            eviction("20+", "northeurope"),
            eviction("5-10", "westeurope"),
        ]
        self.restricted: dict[str, str] = {}
        self.reserved = {"training": ("East US", [reserved("h100", 4, 1)])}
        self.faults: Callable[[str], Answer | None] = lambda _path: None
        self.paths: list[str] = []
        self.versions: set[str] = set()
        """Of the price list, as it was asked for."""
        self.url = ""

    def __call__(self, request: Request) -> Answer:
        self.paths.append(f"{request.method} {request.path}")
        fault = self.faults(request.path)
        if fault is not None:
            return fault
        asked = {name: values[0] for name, values in parse_qs(request.query).items()}
        if request.path == "/prices":
            return as_json(self._prices(asked))
        if request.path == GRAPH_PATH:
            return as_json(self._graph(json.loads(request.body)))
        if request.path.endswith("/skus"):
            return as_json(self._skus(asked))
        if "/capacityReservationGroups" in request.path:
            return as_json(self._reserved(request.path.rpartition("/capacityReservationGroups")[2]))
        return as_json(self._usages(request.path.split("/")[-2]))

    def _prices(self, asked: dict[str, str]) -> Any:
        start = int(asked.get("$skip") or 0)
        if "api-version" in asked:
            self.versions.add(asked["api-version"])
        following = None
        if start + PAGE < len(self.meters):
            following = f"{self.url}/prices?$skip={start + PAGE}"
        rows = self.meters[start : start + PAGE]
        return {"BillingCurrency": "USD", "Items": rows, "NextPageLink": following}

    def _graph(self, asked: dict[str, Any]) -> Any:
        # The table is empty for a query of single subscriptions.
        rows = [] if asked.get("subscriptions") else self.evictions
        start = int(asked["options"].get("$skipToken") or 0)
        page = rows[start : start + PAGE]
        more = {"$skipToken": str(start + PAGE)} if start + PAGE < len(rows) else {}
        return {
            "totalRecords": len(rows),
            "count": len(page),
            "resultTruncated": "false",
            "facets": [],
            "data": page,
            **more,
        }

    def _skus(self, asked: dict[str, str]) -> Any:
        region = asked["$filter"].split("'")[1]
        restrictions = []
        if region in self.restricted:
            restrictions = [{"type": "Location", "reasonCode": self.restricted[region]}]
        return {
            "value": [
                {
                    "resourceType": "virtualMachines",
                    "name": SIZE,
                    "family": "standardNDSH100v5Family",
                    "locations": [region],
                    "locationInfo": [{"location": region, "zones": ["1", "3"]}],
                    "capabilities": [{"name": "vCPUs", "value": "96"}],
                    "restrictions": restrictions,
                }
            ]
        }

    def _reserved(self, path: str) -> Any:
        if not path:
            return {
                "value": [
                    {"id": f"{GROUPS_PATH}/{name}", "name": name, "location": region}
                    for name, (region, _) in self.reserved.items()
                ]
            }
        _, group, _, *name = path.split("/")
        region, members = self.reserved[group]
        whole = [{"location": region, **one} for one in members]
        if name:
            return next(one for one in whole if one["name"] == name[0])
        # A list has no view of the instances.
        view = "instanceView"
        return {
            "value": [
                one | {"properties": {k: v for k, v in one["properties"].items() if k != view}}
                for one in whole
            ]
        }

    def _usages(self, region: str) -> Any:
        return {
            "value": [
                {
                    "unit": "Count",
                    "currentValue": used,
                    "limit": limit,
                    "name": {"value": name, "localizedValue": f"{name} vCPUs"},
                }
                for name, (used, limit) in self.usages[region].items()
            ]
        }


def azure_error(status: int, code: str = "Refused") -> Answer:
    """A refusal whose message holds the caller's token, as no message should.

    https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors
    """
    return as_json({"error": {"code": code, "message": f"Bearer {CANARY_TOKEN}"}}, status)
