"""The catalogue that gpuhunt hosts, as its client reads it: a version and a zipped table each."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

from .server import Answer, Request, as_json

VERSION = "20261122-7"
SELLERS = ("aws", "azure", "cloudrift", "gcp", "lambdalabs", "nebius", "oci", "runpod", "verda")
COLUMNS = (
    *("instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name"),
    *("gpu_memory", "spot", "disk_size", "gpu_vendor", "flags", "cpu_arch", "provider_data"),
)
"""https://github.com/dstackai/gpuhunt/blob/master/src/gpuhunt/_internal/storage.py."""


def hosted(name: str, location: str, usd: str, count: int = 8, **changes: Any) -> dict[str, Any]:
    """A row of the table, in the shape that gpuhunt writes."""
    given = {
        "instance_name": name,
        "location": location,
        "price": usd,
        "cpu": "208",
        "memory": "1932.0",
        "gpu_count": count,
        "gpu_name": "H100",
        "gpu_memory": "80.0",
        "spot": "False",
        "disk_size": "",
        "gpu_vendor": "nvidia",
        "flags": "",
        "cpu_arch": "x86",
        "provider_data": json.dumps({}),
    }
    return given | changes


class HostedWorld:
    """What is hosted; tests change it."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {
            "lambdalabs": [
                hosted("gpu_8x_h100_sxm5", "us-east-1", "31.92"),
                hosted("gpu_8x_h100_sxm5", "us-west-2", "31.92"),
                hosted("gpu_1x_h100_sxm5", "us-east-1", "4.29", 1),
                hosted("gpu_4x_h100_sxm5", "us-east-1", "16.4", 4),
                hosted("cpu_4x_general", "us-east-1", "0.1", 0, gpu_name="", gpu_vendor=""),
            ],
            "nebius": [
                hosted("gpu-h100-sxm 8gpu-128vcpu-1600gb", "eu-north1", "23.6"),
                hosted("gpu-h100-sxm 8gpu-128vcpu-1600gb", "eu-north1", "11.2", spot="True"),
            ],
        }
        self.version = VERSION
        self.faults: Callable[[str], Answer | None] = lambda _path: None
        self.paths: list[str] = []

    def __call__(self, request: Request) -> Answer:
        self.paths.append(request.path)
        fault = self.faults(request.path)
        if fault is not None:
            return fault
        seller = request.path.strip("/").split("/")[0]
        if request.path.endswith("/version"):
            return Answer(f"{self.version}\n".encode(), kind="text/plain")
        return Answer(zipped(seller, self.tables.get(seller, [])), kind="application/zip")


class ListedWorld:
    """The public lists of Vast.ai and Vultr, in the shapes that gpuhunt reads.

    https://docs.vast.ai/api-reference/search/search-offers and
    https://www.vultr.com/api/#tag/plans (recalled, 2026-11-25).
    """

    def __init__(self) -> None:
        self.offers = [bid(1, 0.25), bid(2, 0.31, min_bid=0.1), bid(3, 0.9)]
        self.plans = [plan("vcg-l40s-16c-180g-48vram", 1.67, "NVIDIA_L40S", 48)]
        self.fault: Answer | None = None
        self.headers: list[dict[str, str]] = []

    def __call__(self, request: Request) -> Answer:
        self.headers.append(request.headers)
        if self.fault is not None:
            return self.fault
        if request.path.endswith("/plans-metal"):
            return as_json({"plans_metal": []})
        if request.path.endswith("/plans"):
            return as_json({"plans": self.plans})
        return as_json({"offers": self.offers})


def bid(number: int, usd: float, **changes: Any) -> dict[str, Any]:
    """An offer of one machine on Vast.ai."""
    given = {
        "id": number,
        "cpu_cores": 64,
        "cpu_cores_effective": 16.0,
        "cpu_ram": 257_000,
        "disk_space": 4000.0,
        "storage_cost": 0.15,
        "dph_base": usd,
        "geolocation": "Texas, US",
        "gpu_name": "RTX 4090",
        "gpu_ram": 24564,
        "num_gpus": 1,
        "rentable": True,
        "rented": False,
    }
    return given | changes


def plan(name: str, usd: float, gpu: str, gpu_gb: int) -> dict[str, Any]:
    """A plan of Vultr with an accelerator."""
    return {
        "id": name,
        "type": "vcg",
        "vcpu_count": 16,
        "ram": 184_320,
        "disk": 1200,
        "hourly_cost": usd,
        "gpu_type": gpu,
        "gpu_vram_gb": gpu_gb,
        "locations": ["ewr", "ord"],
    }


def zipped(seller: str, rows: list[dict[str, Any]]) -> bytes:
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{seller}.csv", table.getvalue())
    return packed.getvalue()
