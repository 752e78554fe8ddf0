"""What machines cost that are committed to for years: `data/commitments.csv`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from ..csv_rows import build_row, columns_of, read_rows
from ..embedded import CURATED_DIR, DATA_DIR
from ..types import CommitmentRow
from .on_demand import sold_otherwise

COLUMNS = columns_of("provider,region,instance_type,term_years,usd_per_hour,price_date,source")
TABLE = DATA_DIR / "commitments.csv"

Place = tuple[str, str, str]
"""(provider, region, instance type)."""


def by_place(rows: Iterable[CommitmentRow]) -> dict[Place, tuple[CommitmentRow, ...]]:
    """Return rows by their place, those of one place by their term."""
    place = attrgetter("provider", "region", "instance_type")
    ordered = sorted(rows, key=lambda row: (*place(row), row.term_years))
    return {key: tuple(group) for key, group in groupby(ordered, key=place)}


def commitments_of(provider: str, region: str, instance_type: str) -> tuple[CommitmentRow, ...]:
    """Return the terms the package knows of a type in a region, shortest first.

    What is not sold on demand has none: a commitment pays for hours on demand.
    """
    if (provider, instance_type) in sold_otherwise(CURATED_DIR):
        return ()
    return _by_place().get((provider, region, instance_type), ())


def read_commitments(path: Path = TABLE, *, validate: bool = False) -> list[CommitmentRow]:
    """Return the rows of one table.

    Raises:
        ValueError: its columns are others.
    """
    return [build_row(CommitmentRow, values, validate) for values in read_rows(path, COLUMNS)]


@cache
def _by_place() -> dict[Place, tuple[CommitmentRow, ...]]:
    return by_place(read_commitments())
