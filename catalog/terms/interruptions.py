"""How often a seller takes spot machines back: `data/spot_interruption.csv`.

AWS Spot Advisor states a band: the share of machines that were interrupted in the last *month*. It
is no rate per hour, and not the eviction rate of Azure, which is a chance per hour; the names say
`monthly` so that the two are not mixed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ..csv_rows import build_row, columns_of, read_rows
from ..embedded import DATA_DIR
from ..types import CatalogueRow

COLUMNS = columns_of(
    "provider,region,instance_type,monthly_interruption_low,monthly_interruption_high,"
    "spot_saving,source"
)
TABLE = DATA_DIR / "spot_interruption.csv"


class InterruptionRow(CatalogueRow):
    """The share of one type's spot machines in one region that are interrupted in a month."""

    provider: str
    region: str
    instance_type: str
    monthly_low: float
    """Low end of the seller's band, a share of 0..1 per month."""
    monthly_high: float
    """High end of the band, a share of 0..1 per month; 1 where the band has no end (> 20 %).

    Spot Advisor's own file ends its bands a little above where the next begins (0.11 for 5-10 %).
    """
    spot_saving: float | None
    """How much less than the on-demand price the spot price was, a share; below 0: it was more."""
    source: str


def interruption_of(provider: str, region: str, instance_type: str) -> InterruptionRow | None:
    """Return how often a seller interrupts a type in a region; None: it does not say."""
    return _by_place().get((provider, region, instance_type))


def read_interruptions(path: Path = TABLE, *, validate: bool = False) -> list[InterruptionRow]:
    """Return the rows of one table.

    Raises:
        ValueError: its columns are others.
    """
    rows: list[InterruptionRow] = []
    for values in read_rows(path, COLUMNS):
        values["monthly_low"] = values.pop("monthly_interruption_low")
        values["monthly_high"] = values.pop("monthly_interruption_high")
        rows.append(build_row(InterruptionRow, values, validate))
    return rows


@cache
def _by_place() -> dict[tuple[str, str, str], InterruptionRow]:
    return {(row.provider, row.region, row.instance_type): row for row in read_interruptions()}
