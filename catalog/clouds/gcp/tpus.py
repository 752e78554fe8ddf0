"""Where Cloud TPU offers which of its accelerator types. Read-only.

TPUs up to v6e are rented through a service of their own, which lists its types by zone:
https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.acceleratorTypes
(2026-11-25). TPU7x is a machine type of Compute Engine alone.
"""

from __future__ import annotations

import csv
from functools import cache

from ...embedded import CURATED_DIR
from ..asking import ask_everywhere, unanswered_by
from ..interface import Asked, CloudError, Tell, Unanswered
from .client import GcpClients

TPU = "google.cloud.tpu_v2"
CLIENT = "TpuClient"
Places = set[tuple[str, str]]
"""(machine type, zone)."""


def tpu_places(
    gcp: GcpClients, asked: Asked, listed: Places, tell: Tell
) -> tuple[Places, list[Unanswered]]:
    """Return where the asked machine types are offered: TPUs where Cloud TPU lists them.

    A zone that does not answer, or is none of Cloud TPU's, keeps what Compute Engine lists.

    Args:
        gcp: Clients of a project.
        asked: Machine types and regions.
        listed: What Compute Engine lists.
        tell: Called as zones answer.
    """
    known = accelerator_types()
    ours = {known[name]: name for name in asked.instances if name in known}
    if not ours:
        return listed, []
    try:
        zones = [one for one in tpu_zones(gcp) if region_of(one) in asked.regions]
    except CloudError as error:
        return listed, [unanswered_by(error, "zones")]
    answers, silent = ask_everywhere(
        zones,
        lambda zone: types_in(gcp, zone),
        question="zones",
        what="TPU types of Google Cloud",
        patience=gcp.patience,
        tell=tell,
    )
    told = {(ours[one], zone) for zone, types in answers.items() for one in types & ours.keys()}
    kept = {
        (name, zone) for name, zone in listed if name not in ours.values() or zone not in answers
    }
    unanswered = [
        one.model_copy(
            update={
                "region": region_of(one.region or ""),
                "why": f"TPUs in {one.region}: {one.why}",
            }
        )
        for one in silent
    ]
    return told | kept, unanswered


@cache
def accelerator_types() -> dict[str, str]:
    """Return what Cloud TPU calls the catalogue's machine types."""
    with (CURATED_DIR / "gcp_tpu_types.csv").open(newline="", encoding="utf-8") as file:
        return {row["instance_type"]: row["accelerator_type"] for row in csv.DictReader(file)}


def tpu_zones(gcp: GcpClients) -> list[str]:
    """Return the zones of Cloud TPU; raise CloudError where it does not tell."""
    parent = {"name": f"projects/{gcp.project}"}
    answer = gcp.one(TPU, CLIENT, "list_locations", "tpu.locations.list", parent)
    return [one.location_id for one in answer.locations]


def types_in(gcp: GcpClients, zone: str) -> set[str]:
    """Return the accelerator types of one zone; raise CloudError where it does not tell."""
    parent = {"parent": f"projects/{gcp.project}/locations/{zone}"}
    permission = "tpu.acceleratortypes.list"
    listed = gcp.all_of(TPU, CLIENT, "list_accelerator_types", permission, parent)
    return {one.type_ for one in listed}


def region_of(zone: str) -> str:
    """Return the region of a zone.

    >>> region_of("us-central1-a")
    'us-central1'
    """
    return zone.rsplit("-", 1)[0]
