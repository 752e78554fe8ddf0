"""Instance types that are not sold on demand, whatever price on demand their seller lists."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from ..types import Offer

FILE = "not_on_demand.csv"
NOT_ON_DEMAND_RULE = "not-on-demand"


@cache
def sold_otherwise(curated_dir: Path) -> Mapping[tuple[str, str], str]:
    """Return in which ways they are sold, by (provider, instance type).

    Args:
        curated_dir: The folder of the table.
    """
    with (curated_dir / FILE).open(newline="", encoding="utf-8") as file:
        return {
            (row["provider"], row["instance_type"]): row["ways"] for row in csv.DictReader(file)
        }


def without_on_demand(offers: Iterable[Offer], curated_dir: Path) -> tuple[Offer, ...]:
    """Return offers without the prices on demand that nothing is sold for."""
    ways = sold_otherwise(curated_dir)
    return tuple(
        offer
        if (offer.provider, offer.instance_type) not in ways
        else offer.model_copy(
            update={
                "on_demand_usd_per_hour": None,
                "note": f"sold {ways[offer.provider, offer.instance_type]} alone",
            }
        )
        for offer in offers
    )
