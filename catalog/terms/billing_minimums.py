"""The least that a seller bills of some of its types: `data/curated/billing_minimums.csv`."""

from __future__ import annotations

import csv
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..types import Provider

FILE = "billing_minimums.csv"


class BillingMinimum(NamedTuple):
    """Types of a seller that are billed for at least so long."""

    provider: str
    instance_types: str
    """A pattern of names, "BM.*"."""
    minimum_s: int


@cache
def billing_minimums(curated_dir: Path) -> tuple[BillingMinimum, ...]:
    """Return the rows of the table.

    Args:
        curated_dir: The folder of the table.
    """
    with (curated_dir / FILE).open(newline="", encoding="utf-8") as file:
        return tuple(
            BillingMinimum(row["provider"], row["instance_type"], int(row["minimum_s"]))
            for row in csv.DictReader(file)
        )


def with_minimum_of(seller: Provider, instance_type: str, curated_dir: Path) -> Provider:
    """Return how a seller bills one of its types.

    Args:
        seller: How it bills most of them.
        instance_type: The name of the type.
        curated_dir: The folder of the table.
    """
    minimum_s = _minimum_s(seller.name, instance_type, curated_dir)
    return seller if minimum_s is None else seller.model_copy(update={"minimum_s": minimum_s})


@cache
def _minimum_s(provider: str, instance_type: str, curated_dir: Path) -> int | None:
    for one in billing_minimums(curated_dir):
        if one.provider == provider and fnmatchcase(instance_type, one.instance_types):
            return one.minimum_s
    return None
