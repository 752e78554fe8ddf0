"""In which lengths sellers rent out capacity blocks: `data/curated/capacity_blocks.csv`.

A block is a number of machines for a number of whole days, paid in advance. No table has a price of
one, because sellers quote it anew for each date; the user's pricebook states what was quoted.
"""

from __future__ import annotations

import csv
from functools import cache

from ..embedded import CURATED_DIR

TABLE = CURATED_DIR / "capacity_blocks.csv"
SECONDS_PER_MINUTE = 60.0


@cache
def block_days(provider: str) -> tuple[int, ...]:
    """Return the lengths of a seller's blocks, days, the shortest first; empty: none is known."""
    return tuple(
        sorted(
            day
            for row in _rows(provider)
            for day in range(int(row["from_days"]), int(row["to_days"]) + 1, int(row["step_days"]))
        )
    )


@cache
def block_lost_s(provider: str) -> float:
    """Return the seconds at the end of a block in which its machines are ended already."""
    minutes = max((float(row["lost_minutes"]) for row in _rows(provider)), default=0.0)
    return minutes * SECONDS_PER_MINUTE


@cache
def block_most_instances(provider: str) -> int | None:
    """Return how many instances one block of a seller has at most; None: not known."""
    return max((int(row["most_instances"]) for row in _rows(provider)), default=None)


def _rows(provider: str) -> list[dict[str, str]]:
    with TABLE.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["provider"] == provider]
