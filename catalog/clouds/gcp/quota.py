"""Which GPU quota of Google Cloud counts which machine type, and how much is used. Pure."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

from ...embedded import CURATED_DIR
from ...vocabulary import OfferPurchase
from .skus import series_of

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


@cache
def _table() -> dict[tuple[str, str], QuotaName]:
    with (CURATED_DIR / "gcp_quotas.csv").open(newline="", encoding="utf-8") as file:
        return {
            (row["series"], row["purchase"]): QuotaName(
                cast(Literal["metric", "family"], row["kind"]), row["name"]
            )
            for row in csv.DictReader(file)
        }
