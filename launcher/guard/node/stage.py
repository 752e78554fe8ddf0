"""Which of the two tasks of a run with a deadline this is, and how its machine was bought.

The variable GPUPLAN_STAGE is `spot` in the first: it is given spot machines, or others where there
are none, and where it ends with 0 the second begins, in which it is `on-demand`.
"""

from __future__ import annotations

import os
from http.client import HTTPException
from typing import TYPE_CHECKING

from .metadata import told

if TYPE_CHECKING:
    from .metadata import Ask

VARIABLE = "GPUPLAN_STAGE"
SPOT, ON_DEMAND = "spot", "on-demand"


def stage() -> str:
    """Return the task's stage; empty where the run has one task."""
    return os.environ.get(VARIABLE, "")


def market(cloud: str, ask: Ask | None = None) -> str | None:
    """Return how this machine was bought, `spot` or `on-demand`; None where it cannot be told.

    Args:
        cloud: as SkyPilot names it, lower case.
        ask: from method, URL and headers to what the machine's metadata service answers.
    """
    if stage() == ON_DEMAND:
        return ON_DEMAND
    try:
        said = _is_spot(cloud.lower(), ask)
    except (OSError, ValueError, HTTPException):
        return None
    return None if said is None else SPOT if said else ON_DEMAND


def _is_spot(cloud: str, ask: Ask | None) -> bool | None:
    """Return whether the cloud says that this is a spot machine.

    Each as its provider documents it: `instance-life-cycle` of EC2's instance metadata,
    `scheduling/preemptible` of Compute Engine's, `compute/priority` of Azure's (Low, before Spot).
    """
    if cloud == "aws":
        return told(cloud, "/meta-data/instance-life-cycle", ask) == "spot"
    if cloud == "gcp":
        return told(cloud, "/instance/scheduling/preemptible", ask).upper() == "TRUE"
    if cloud == "azure":
        path = "/instance/compute/priority?api-version=2021-02-01&format=text"
        return told(cloud, path, ask).lower() in ("spot", "low")
    return None
