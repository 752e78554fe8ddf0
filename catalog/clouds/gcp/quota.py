"""Which GPU quota of Google Cloud counts which machine type, and how much is used. Pure."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

from ...embedded import CURATED_DIR
from ...vocabulary import OfferPurchase
from .skus import series_of

QUOTAS = "google.cloud.cloudquotas_v1"
QUOTA_ID_OF_FAMILIES = "GPUS-PER-GPU-FAMILY-per-project-region"
"""One quota with a dimension for each newer family of accelerators."""


@dataclass(frozen=True)
class QuotaName:
    """One quota: of an own metric, or of a family of the quota of families."""

    kind: Literal["metric", "family"]
    name: str

    @property
    def id(self) -> str:
        """What `gcloud beta quotas` calls it.

        >>> QuotaName("metric", "NVIDIA_L4_GPUS").id
        'NVIDIA-L4-GPUS-per-project-region'
        """
        if self.kind == "family":
            return QUOTA_ID_OF_FAMILIES
        place = "per-project" if self.name == "GPUS_ALL_REGIONS" else "per-project-region"
        return f"{self.name.replace('_', '-')}-{place}"


def quota_of(instance_type: str, purchase: OfferPurchase) -> QuotaName | None:
    """Return the quota that counts a machine type; None where that is not known."""
    return _table().get((series_of(instance_type), purchase))


def used_gpus(
    running: Iterable[tuple[str, str, bool, int]],
    quota: QuotaName,
    region: str,
    purchase: OfferPurchase,
) -> int:
    """Return the accelerators of the running machines that a quota counts in one region.

    Args:
        running: (zone, machine type, is spot, accelerators) of each machine.
        quota: The quota.
        region: The region.
        purchase: Spot machines and others have quotas of their own.
    """
    return sum(
        count
        for zone, machine_type, is_spot, count in running
        if zone.rsplit("-", 1)[0] == region
        and is_spot == (purchase == "spot")
        and quota_of(machine_type, purchase) == quota
    )


def limit_of(info: Any, wanted: Mapping[str, str]) -> float | None:
    """Return the limit of the row of a quota that names what is wanted most closely.

    Args:
        info: The quota, as Cloud Quotas tells it.
        wanted: Its dimensions: region, zone, family.

    Returns:
        None where no row is of it, or none states a limit: -1 stands there for "not set", which
        was seen of quotas that allow nothing and of quotas that allow all.
    """
    best: tuple[int, float] | None = None
    for row in info.dimensions_infos:
        named = dict(row.dimensions)
        places = set(row.applicable_locations)
        if any(wanted.get(name, value) != value for name, value in named.items()):
            continue
        if places and places.isdisjoint(wanted.values()):
            continue
        if best is None or len(named) > best[0]:
            best = (len(named), float(row.details.value))
    return None if best is None or best[1] < 0 else best[1]


@cache
def _table() -> dict[tuple[str, str], QuotaName]:
    with (CURATED_DIR / "gcp_quotas.csv").open(newline="", encoding="utf-8") as file:
        return {
            (row["series"], row["purchase"]): QuotaName(
                cast(Literal["metric", "family"], row["kind"]), row["name"]
            )
            for row in csv.DictReader(file)
        }
