"""Which quotas of Cloud TPU count a TPU, their limits and what of them is used. Read-only.

TPUs up to v6e are counted by the service that rents them (tpu.googleapis.com), in each zone and
in each region at once: a request needs room in both. The quotas that Compute Engine has for TPUs
count those of GKE and of its own machines, and say nothing of these.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, cast

from ...embedded import CURATED_DIR
from ...vocabulary import OfferPurchase
from ..asking import ask_everywhere, unanswered_by
from ..interface import Asked, CloudError, Quota, Tell, Unanswered
from .client import GcpClients
from .quota import QUOTAS, limit_of
from .tpus import accelerator_types, region_of, tpu_zones, types_in

SERVICE = "tpu.googleapis.com"
TPU = "google.cloud.tpu_v2"
HOLDING = frozenset(("CREATING", "READY", "RESTARTING", "REIMAGING", "REPAIRING", "STARTING"))
"""States of nodes that hold their chips:
https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes#State."""
ONE_HOST_CHIPS = 8
"""The largest TPU v5e of one host; larger ones are slices of several."""


@dataclass(frozen=True)
class TpuQuota:
    """One quota of Cloud TPU."""

    id: str
    place: Literal["zone", "region"]
    unit: Literal["TPU chip", "TPU core"]


@dataclass(frozen=True)
class Held:
    """What one node takes."""

    accelerator_type: str
    purchase: OfferPurchase


@dataclass(frozen=True)
class ZoneAnswer:
    """What Cloud TPU says of one zone."""

    types: frozenset[str]
    held: tuple[Held, ...] | None
    """None where the nodes were not told."""
    silent: Unanswered | None = None


def quotas_of(
    accelerator_type: str, purchase: OfferPurchase, *, hosts: int = 1
) -> tuple[TpuQuota, ...]:
    """Return the quotas that count an accelerator type; none where that is not known.

    Args:
        accelerator_type: As Cloud TPU calls it.
        purchase: On demand or spot.
        hosts: Of how many such hosts the slice is.

    >>> [one.id for one in quotas_of("v5litepod-8", "on-demand")]
    ['TPUV5sLitepodServingPerProjectPerZoneForTPUAPI']
    >>> quotas_of("v4-8", "on-demand")
    ()
    """
    generation, size = _parts(accelerator_type)
    several = hosts > 1 or (generation == "v5litepod" and size > ONE_HOST_CHIPS)
    return tuple(
        quota
        for (name, which, way), quota in _table()
        if name == generation
        and way == purchase
        and which in ("any", "several" if several else "one")
    )


def size_of(accelerator_type: str) -> int:
    """Return what an accelerator type takes of its quotas: the number in its name.

    >>> size_of("v5p-8")  # Four chips of two cores, and its quota counts cores.
    8
    """
    return _parts(accelerator_type)[1]


def tpu_quotas(
    gcp: GcpClients, asked: Asked, tell: Tell
) -> tuple[list[Quota], list[Unanswered], set[str]]:
    """Return the quotas of the TPUs that are asked for, and what is not known of them.

    Of the zones of a region, the one with the most room among those that offer the TPU is
    answered: a request goes to one zone.

    Args:
        gcp: Clients of a project.
        asked: Machine types, regions, how many of them and how they are bought.
        tell: Called as zones answer.

    Returns:
        The quotas; what Google did not say; the machine types that these quotas count.
    """
    known = accelerator_types()
    wanted = {
        name: quotas
        for name in asked.instances
        if name in known and (quotas := quotas_of(known[name], asked.purchase, hosts=asked.nodes))
    }
    if not wanted:
        return [], [], set()
    try:
        zones = [one for one in tpu_zones(gcp) if region_of(one) in asked.regions]
        ids = sorted({quota.id for quotas in wanted.values() for quota in quotas})
        infos = {one: _info(gcp, one) for one in ids}
    except CloudError as error:
        silent = [unanswered_by(error, "quota", region) for region in asked.regions]
        return [], silent, set(wanted)
    answers, late = ask_everywhere(
        zones,
        partial(_zone, gcp),
        question="quota",
        what="TPUs of Google Cloud",
        patience=gcp.patience,
        tell=tell,
    )
    silent_regions = {region_of(one.region or "") for one in late}
    unanswered = [one.model_copy(update={"region": region_of(one.region or "")}) for one in late]
    unanswered += [one.silent for one in answers.values() if one.silent is not None]
    counted = [
        _counted(
            quota,
            infos[quota.id],
            region=region,
            here={zone: one for zone, one in answers.items() if region_of(zone) == region},
            all_told=region not in silent_regions,
            name=name,
            asked=asked,
        )
        for region in asked.regions
        for name, quotas in wanted.items()
        for quota in quotas
    ]
    unanswered += [one for one in counted if isinstance(one, Unanswered)]
    return [one for one in counted if isinstance(one, Quota)], unanswered, set(wanted)


def _counted(
    quota: TpuQuota,
    info: Any,
    *,
    region: str,
    here: Mapping[str, ZoneAnswer],
    all_told: bool,
    name: str,
    asked: Asked,
) -> Quota | Unanswered | None:
    """Return one quota of a region, or of its zone with the most room; None without a zone.

    What is used in a region of which a zone did not answer is not known.
    """
    own = accelerator_types()[name]
    if quota.place == "region":
        stated = {region: limit_of(info, {"region": region})}
        held = {region: _used(here.values(), quota, asked.purchase) if all_told else None}
    else:
        offering = [zone for zone, one in here.items() if own in one.types]
        stated = {zone: limit_of(info, {"zone": zone, "region": region}) for zone in offering}
        held = {zone: _used([here[zone]], quota, asked.purchase) for zone in offering}
    limits = {place: limit for place, limit in stated.items() if limit is not None}
    if not limits:
        why = f"no limit of {quota.id} is stated"
        silent = Unanswered(question="quota", region=region, instance_type=name, why=why)
        return silent if stated else None
    needed = size_of(own) * asked.nodes

    def most_room(place: str) -> tuple[bool, bool, float, str]:
        """Rank first where it surely fits, then where it may, then by what is left."""
        room = limits[place] - (held[place] or 0.0)
        return room >= needed and held[place] is not None, room >= needed, room, place

    place = max(limits, key=most_room)
    return Quota(
        region=region,
        zone=place if quota.place == "zone" else None,
        instance_type=name,
        purchase=asked.purchase,
        name=quota.id,
        code=quota.id,
        unit=quota.unit,
        limit=limits[place],
        used=held[place],
        per_instance=size_of(own),
    )


def _used(zones: Iterable[ZoneAnswer], quota: TpuQuota, purchase: OfferPurchase) -> float | None:
    """Return what nodes take of a quota in some zones; None where a zone does not tell."""
    used = 0.0
    for zone in zones:
        if zone.held is None:
            return None
        used += sum(
            size_of(one.accelerator_type)
            for one in zone.held
            if one.purchase == purchase and quota in quotas_of(one.accelerator_type, purchase)
        )
    return used


def _zone(gcp: GcpClients, zone: str) -> ZoneAnswer:
    """Ask one zone for its types and its nodes; raise CloudError without the types."""
    types = types_in(gcp, zone)
    parent = {"parent": f"projects/{gcp.project}/locations/{zone}"}
    try:
        nodes = gcp.all_of(TPU, "TpuClient", "list_nodes", "tpu.nodes.list", parent)
        held = tuple(_held(one) for one in nodes if one.state.name in HOLDING)
    except CloudError as error:
        silent = unanswered_by(error, "use", region_of(zone))
        return ZoneAnswer(frozenset(types), None, silent)
    known = all(one is None or SIZED.fullmatch(one.accelerator_type) for one in held)
    told = tuple(one for one in held if one is not None) if known else None
    return ZoneAnswer(frozenset(types), told)


def _held(node: Any) -> Held | None:
    """Return what a node takes; None of one in a reservation, which other quotas count."""
    how = node.scheduling_config
    if how.reserved:
        return None
    return Held(node.accelerator_type, "spot" if how.preemptible or how.spot else "on-demand")


def _info(gcp: GcpClients, quota_id: str) -> Any:
    name = f"projects/{gcp.project}/locations/global/services/{SERVICE}/quotaInfos/{quota_id}"
    return gcp.one(
        QUOTAS, "CloudQuotasClient", "get_quota_info", "cloudquotas.quotas.get", {"name": name}
    )


SIZED = re.compile(r"(.+)-(\d+)")


def _parts(accelerator_type: str) -> tuple[str, int]:
    match = SIZED.fullmatch(accelerator_type)
    return (match[1], int(match[2])) if match else (accelerator_type, 0)


@cache
def _table() -> tuple[tuple[tuple[str, str, str], TpuQuota], ...]:
    with (CURATED_DIR / "gcp_tpu_quotas.csv").open(newline="", encoding="utf-8") as file:
        return tuple(
            (
                (row["generation"], row["hosts"], row["purchase"]),
                TpuQuota(
                    row["quota_id"],
                    cast(Literal["zone", "region"], row["place"]),
                    cast(Literal["TPU chip", "TPU core"], row["unit"]),
                ),
            )
            for row in csv.DictReader(file)
        )
