"""Which quota of AWS counts which instance type, and how much of it is used. Pure.

All of them count vCPUs. Which spot quota counts p6 is not stated in a source that was read, so it
is not known here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...embedded import CURATED_DIR
from ...vocabulary import OfferPurchase


@dataclass(frozen=True)
class QuotaName:
    """One quota of EC2."""

    code: str
    name: str


def family_of(instance_type: str) -> str:
    """Return the family of an instance type.

    >>> family_of("p5.48xlarge")
    'p5'
    """
    return instance_type.partition(".")[0]


def quota_of(instance_type: str, purchase: OfferPurchase) -> QuotaName | None:
    """Return the quota that counts an instance type; None where that is not known."""
    return _table().get((family_of(instance_type), purchase))


def families_of(code: str, purchase: OfferPurchase) -> frozenset[str]:
    """Return the families that one quota counts."""
    return frozenset(
        family
        for (family, bought), one in _table().items()
        if (one.code, bought) == (code, purchase)
    )


def used_vcpus(
    instances: Iterable[Mapping[str, Any]], families: frozenset[str], purchase: OfferPurchase
) -> int:
    """Return the vCPUs of the running machines that a quota counts.

    Args:
        instances: As DescribeInstances returns them.
        families: Those the quota counts.
        purchase: Spot machines and others have quotas of their own.
    """
    total = 0
    for instance in instances:
        if family_of(instance["InstanceType"]) not in families:
            continue
        # Machines of a capacity block count against no quota:
        # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-capacity-blocks.html (2026-11-23).
        if instance.get("InstanceLifecycle") == "capacity-block":
            continue
        is_spot = instance.get("InstanceLifecycle") == "spot"
        if is_spot == (purchase == "spot"):
            cpu = instance.get("CpuOptions", {})
            total += int(cpu.get("CoreCount", 0)) * int(cpu.get("ThreadsPerCore", 1))
    return total


@cache
def _table() -> dict[tuple[str, str], QuotaName]:
    with (CURATED_DIR / "aws_quotas.csv").open(newline="", encoding="utf-8") as file:
        return {
            (row["family"], row["purchase"]): QuotaName(row["code"], row["name"])
            for row in csv.DictReader(file)
        }
