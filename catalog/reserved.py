"""Which instance types are in practice sold by reservation, whatever their price list says."""

from __future__ import annotations

import csv
from functools import cache

from .embedded import CURATED_DIR
from .types import Instance

_BY_CLASS = {"reservation": "reservation", "capacity-block": "capacity block"}


def reserved_how(instance: Instance) -> str | None:
    """Return how a type is usually had, "reservation" or "capacity block"; None: by asking for it.

    A type with a class of use for reservations and none for on-demand use is had so by its
    provider's own word; those whose list has an on-demand price all the same are kept by hand.
    """
    kept = _kept_by_hand().get((instance.provider, instance.instance_type))
    if kept is not None or "on-demand" in instance.usage_classes:
        return kept
    return next((_BY_CLASS[one] for one in instance.usage_classes if one in _BY_CLASS), None)


@cache
def _kept_by_hand() -> dict[tuple[str, str], str]:
    path = CURATED_DIR / "reserved_in_practice.csv"
    with path.open(newline="", encoding="utf-8") as file:
        return {(row["provider"], row["instance_type"]): row["how"] for row in csv.DictReader(file)}
