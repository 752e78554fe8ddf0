"""Google Cloud as its client libraries see it over REST: SKUs, machine types, quotas."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs

from gpuplan.catalog.clouds.asking import Patience
from gpuplan.catalog.clouds.interface import Asked
from gpuplan.catalog.embedded import embedded_catalogue

from .server import Answer, Request, as_json

PAGE = 3
PROJECT = "canary-project"
CANARY_TOKEN = "ya29.canarytokencanarytokencanary"
QUOTA = "GPUS-PER-GPU-FAMILY-per-project-region"

A3_IN_AMERICAS = {
    "A3 Instance Core running in Americas": ("CPU", "h", 0, 25_498_000),
    "A3 Instance Ram running in Americas": ("RAM", "GiBy.h", 0, 2_220_300),
    "Nvidia H100 80GB GPU running in Americas": ("GPU", "h", 9, 796_550_569),
    "SSD backed Local Storage": ("LocalSSD", "GiBy.mo", 0, 80_000_000),
}
"""What is known of the list prices in us-central1 on 2026-07; the machine of eight is $88.49."""

NOW = datetime(2026, 11, 23, 18, tzinfo=UTC)
HASTY = Patience(first_pause_s=0.0, answer_timeout_s=10.0, connect_timeout_s=10.0)


def asked(name: str = "a3-highgpu-8g", **changes: Any) -> Asked:
    """Return what is asked of one machine type in us-central1."""
    given = {
        "instances": {name: embedded_catalogue().instances["gcp", name]},
        "regions": ("us-central1",),
        "known_places": frozenset({("us-central1", name), ("us-east4", name)}),
        "now": NOW,
    }
    return Asked(**(given | changes))


def no_tell(_what: str, _done: int | None, _total: int | None) -> None:
    pass


def credentials() -> Any:
    return import_module("google.auth.credentials").AnonymousCredentials()


def sku(
    description: str,
    group: str = "GPU",
    unit: str = "h",
    units: int = 0,
    nanos: int = 0,
    *,
    usage: str = "OnDemand",
    regions: tuple[str, ...] = ("us-central1", "us-east4"),
    currency: str = "USD",
) -> dict[str, Any]:
    """A SKU in the documented shape.

    https://cloud.google.com/billing/docs/reference/rest/v1/services.skus
    """
    return {
        "name": f"services/6F81-5844-456A/skus/{abs(hash(description)):X}",
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "effectiveTime": "2026-11-23T00:00:00Z",
                "pricingExpression": {
                    "usageUnit": unit,
                    "tieredRates": [
                        {
                            "startUsageAmount": 0,
                            "unitPrice": {
                                "currencyCode": currency,
                                "units": str(units),
                                "nanos": nanos,
                            },
                        }
                    ],
                },
            }
        ],
    }


def capacity_history(
    rates: tuple[Any, ...] = (0.25, 0.4, 0.31), usd: tuple[str, ...] = ("22", "27")
) -> dict[str, Any]:
    """The history of a spot machine, in the documented shape.

    https://cloud.google.com/compute/docs/reference/rest/v1/advice/capacityHistory
    """

    def interval(day: int) -> dict[str, str]:
        return {
            "startTime": f"2026-11-{day:02}T00:00:00Z",
            "endTime": f"2026-11-{day + 1:02}T00:00:00Z",
        }

    return {
        "location": "https://www.googleapis.com/compute/v1/projects/p/regions/us-central1",
        "machineType": "a3-highgpu-8g",
        "preemptionHistory": [
            {"interval": interval(day), "preemptionRate": rate}
            for day, rate in enumerate(rates, start=10)
        ],
        "priceHistory": [
            {
                "interval": interval(day),
                "listPrice": {"currencyCode": "USD", "units": one, "nanos": 500_000_000},
            }
            for day, one in enumerate(usd, start=10)
        ],
    }


def node(accelerator_type: str, *, state: str = "READY", **scheduling: bool) -> dict[str, Any]:
    """A TPU of the project, in the documented shape.

    https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes
    """
    return {
        "name": "a-node",
        "acceleratorType": accelerator_type,
        "state": state,
        "schedulingConfig": scheduling,
    }


def calendar_advice(**changes: Any) -> dict[str, Any]:
    """Advice of Calendar mode, in the documented shape.

    https://cloud.google.com/compute/docs/reference/rest/v1/advice/calendarMode
    """
    advised = {
        "recommendationId": "0e6c5b1e-0000-0000-0000-000000000001",
        "recommendationType": "FUTURE_RESERVATION",
        "location": "zones/us-central1-a",
        "startTime": "2026-12-01T08:00:00Z",
        "endTime": "2026-12-08T08:00:00Z",
        "otherLocations": {
            "zones/us-central1-b": {"status": "NO_CAPACITY", "details": "none"},
            "zones/us-central1-c": {"status": "RECOMMENDED"},
            "zones/us-central1-f": {"status": "NOT_SUPPORTED"},
        },
        **changes,
    }
    return {"recommendations": [{"recommendationsPerSpec": {"wanted": advised}}]}


class GcpWorld:
    """What the fake Google Cloud has; tests change it."""

    def __init__(self) -> None:
        self.skus = [sku(description, *price) for description, price in A3_IN_AMERICAS.items()]
        self.zones = {"us-central1-a": ["a3-highgpu-8g"], "us-central1-c": ["a3-highgpu-8g"]}
        self.tpus = {
            "us-central1-a": ["v5litepod-4", "v5litepod-8", "v6e-8"],
            "us-central1-b": [],
            "europe-west4-a": ["v5litepod-4"],
        }
        self.nodes: dict[str, list[dict[str, Any]]] = {}
        self.tpu_limits = {
            "TPUV6EPerProjectPerZoneForTPUAPI": {"us-central1-a": 32},
            "TPUV6EPerProjectPerRegionForTPUAPI": {"us-central1": 64},
        }
        """By quota id: limits by zone or region."""
        self.limits = {"us-central1": 16}
        self.running = [("us-central1-a", "a3-highgpu-8g", 8)]
        self.metrics = {"us-central1": {"NVIDIA_A100_GPUS": (16.0, 8.0)}}
        self.obtainability = 0.7
        self.history = capacity_history()
        self.calendar = calendar_advice()
        self.bodies: list[tuple[str, Any]] = []
        self.faults: Callable[[str], Answer | None] = lambda _path: None
        self.paths: list[str] = []

    def __call__(self, request: Request) -> Answer:
        self.paths.append(f"{request.method} {request.path}")
        fault = self.faults(request.path)
        if fault is not None:
            return fault
        last = request.path.rpartition("/")[2]
        if request.body:
            self.bodies.append((last, json.loads(request.body)))
        asked = {name: values[0] for name, values in parse_qs(request.query).items()}
        answers: dict[str, Callable[[dict[str, str]], Any]] = {
            "skus": self._skus,
            "machineTypes": self._machine_types,
            "instances": self._instances,
            "reservations": lambda _asked: {"items": {}},
            "regions": self._regions,
            "locations": lambda _asked: {
                "locations": [{"name": f"x/{zone}", "locationId": zone} for zone in self.tpus]
            },
            "acceleratorTypes": lambda _asked: self._tpu_types(request.path.split("/")[-2]),
            "nodes": lambda _asked: {"nodes": self.nodes.get(request.path.split("/")[-2], [])},
            **{one: partial(self._tpu_quota, one) for one in self.tpu_limits},
            "capacity": lambda _asked: {
                "recommendations": [{"scores": {"obtainability": self.obtainability}}]
            },
            "capacityHistory": lambda _asked: self.history,
            "calendarMode": lambda _asked: self.calendar,
            QUOTA: self._quota,
            PROJECT: lambda _asked: {
                "quotas": [{"metric": "GPUS_ALL_REGIONS", "limit": 8.0, "usage": 8.0}]
            },
        }
        return as_json(answers[last](asked))

    def _skus(self, asked: dict[str, str]) -> Any:
        start = int(asked.get("pageToken") or 0)
        more = {"nextPageToken": str(start + PAGE)} if start + PAGE < len(self.skus) else {}
        return {"skus": self.skus[start : start + PAGE], **more}

    def _machine_types(self, _asked: dict[str, str]) -> Any:
        return {
            "items": {
                f"zones/{zone}": {"machineTypes": [{"name": name} for name in names]}
                for zone, names in self.zones.items()
            }
        }

    def _tpu_types(self, zone: str) -> Any:
        """https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.acceleratorTypes"""
        where = f"projects/{PROJECT}/locations/{zone}/acceleratorTypes"
        return {
            "acceleratorTypes": [
                {"name": f"{where}/{name}", "type": name} for name in self.tpus[zone]
            ]
        }

    def _tpu_quota(self, quota_id: str, _asked: dict[str, str]) -> Any:
        """https://cloud.google.com/docs/quotas/reference/rest/v1/QuotaInfo: -1 where unset."""
        kind = "zone" if "PerZone" in quota_id else "region"
        rows = [
            {
                "dimensions": {kind: place},
                "details": {"value": str(limit)},
                "applicableLocations": [place],
            }
            for place, limit in self.tpu_limits[quota_id].items()
        ]
        every = {"dimensions": {}, "details": {"value": "-1"}}
        return {"quotaId": quota_id, "dimensionsInfos": [*rows, every]}

    def _instances(self, _asked: dict[str, str]) -> Any:
        items: dict[str, Any] = {}
        for zone, name, count in self.running:
            listed = items.setdefault(f"zones/{zone}", {"instances": []})["instances"]
            listed.append(
                {
                    "status": "RUNNING",
                    "machineType": f"https://www.googleapis.com/compute/v1/zones/{zone}/{name}",
                    "guestAccelerators": [{"acceleratorCount": count}],
                    "scheduling": {"provisioningModel": "STANDARD"},
                }
            )
        return {"items": items}

    def _regions(self, _asked: dict[str, str]) -> Any:
        return {
            "items": [
                {
                    "name": region,
                    "quotas": [
                        {"metric": metric, "limit": limit, "usage": usage}
                        for metric, (limit, usage) in metrics.items()
                    ],
                }
                for region, metrics in self.metrics.items()
            ]
        }

    def _quota(self, _asked: dict[str, str]) -> Any:
        rows = [
            {
                "dimensions": {"region": region, "gpu_family": "NVIDIA_H100"},
                "details": {"value": str(limit)},
                "applicableLocations": [region],
            }
            for region, limit in self.limits.items()
        ]
        every = {"dimensions": {}, "details": {"value": "0"}}
        return {"quotaId": QUOTA, "dimensionsInfos": [*rows, every]}


def disabled(service: str) -> Answer:
    """A service that the project has not enabled: SERVICE_DISABLED.

    https://docs.cloud.google.com/apis/design/errors#error_info and
    https://github.com/googleapis/googleapis/blob/master/google/api/error_reason.proto.
    """
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "SERVICE_DISABLED",
        "domain": "googleapis.com",
        "metadata": {"service": service, "consumer": f"projects/{CANARY_TOKEN}"},
    }
    said = {"code": 403, "message": f"token {CANARY_TOKEN}", "status": "PERMISSION_DENIED"}
    return as_json({"error": said | {"details": [info]}}, 403)


def gcp_error(status: int) -> Answer:
    """A refusal whose message holds the caller's token, as no message should."""
    said = {"error": {"code": status, "message": f"token {CANARY_TOKEN}", "status": "REFUSED"}}
    return as_json(said, status)
