"""Which of the two tasks of a run with a deadline this is, and how its machine was bought.

The variable GPUPLAN_STAGE is `spot` in the first: it is given spot machines, or others where there
are none, and where it ends with 0 the second begins, in which it is `on-demand`.
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException

VARIABLE = "GPUPLAN_STAGE"
SPOT, ON_DEMAND = "spot", "on-demand"
METADATA = "http://169.254.169.254"
WITHIN_S = 3.0


def stage() -> str:
    """Return the task's stage; empty where the run has one task."""
    return os.environ.get(VARIABLE, "")


def market(
    cloud: str, ask: Callable[[str, str, Mapping[str, str]], str] | None = None
) -> str | None:
    """Return how this machine was bought, `spot` or `on-demand`; None where it cannot be told.

    Args:
        cloud: as SkyPilot names it, lower case.
        ask: from method, URL and headers to what the machine's metadata service answers.
    """
    if stage() == ON_DEMAND:
        return ON_DEMAND
    try:
        said = _told(cloud.lower(), ask or _ask)
    except (OSError, ValueError, HTTPException):
        return None
    return None if said is None else SPOT if said else ON_DEMAND


def _told(cloud: str, ask: Callable[[str, str, Mapping[str, str]], str]) -> bool | None:
    """Return whether the cloud says that this is a spot machine.

    Each as its provider documents it: `instance-life-cycle` of EC2's instance metadata,
    `scheduling/preemptible` of Compute Engine's, `compute/priority` of Azure's (Low, before Spot).
    """
    if cloud == "aws":
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = ask("PUT", f"{METADATA}/latest/api/token", ttl)
        url = f"{METADATA}/latest/meta-data/instance-life-cycle"
        return ask("GET", url, {"X-aws-ec2-metadata-token": token}) == "spot"
    if cloud == "gcp":
        url = f"{METADATA}/computeMetadata/v1/instance/scheduling/preemptible"
        return ask("GET", url, {"Metadata-Flavor": "Google"}).upper() == "TRUE"
    if cloud == "azure":
        url = f"{METADATA}/metadata/instance/compute/priority?api-version=2021-02-01&format=text"
        return ask("GET", url, {"Metadata": "true"}).lower() in ("spot", "low")
    return None


def _ask(method: str, url: str, headers: Mapping[str, str]) -> str:
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    # The machine's own service; a proxy would answer for itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=WITHIN_S) as answer:
        return answer.read(1000).decode().strip()
