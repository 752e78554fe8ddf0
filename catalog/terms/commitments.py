"""What machines cost that are committed to for years: `data/commitments.csv`."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from ..csv_rows import build_row, columns_of, read_rows
from ..embedded import DATA_DIR
from ..types import CatalogueRow

COLUMNS = columns_of("provider,region,instance_type,term_years,usd_per_hour,price_date,source")
TABLE = DATA_DIR / "commitments.csv"


class CommitmentRow(CatalogueRow):
    """The price of one instance type in one region, committed to for a term."""

    provider: str
    region: str
    instance_type: str
    term_years: int
    """Years for which every hour is paid, used or not."""
    usd_per_hour: Decimal
    """US dollars an hour of one instance, over the whole term, paid month by month."""
    price_date: date
    source: str


def commitments_of(provider: str, region: str, instance_type: str) -> tuple[CommitmentRow, ...]:
    """Return the terms a type is sold for in a region, shortest first; empty: none is known."""
    return _by_place().get((provider, region, instance_type), ())


def read_commitments(path: Path = TABLE, *, validate: bool = False) -> list[CommitmentRow]:
    """Return the rows of one table.

    Raises:
        ValueError: its columns are others.
    """
    return [build_row(CommitmentRow, values, validate) for values in read_rows(path, COLUMNS)]


@cache
def _by_place() -> dict[tuple[str, str, str], tuple[CommitmentRow, ...]]:
    place = attrgetter("provider", "region", "instance_type")
    rows = sorted(read_commitments(), key=lambda row: (*place(row), row.term_years))
    return {key: tuple(group) for key, group in groupby(rows, key=place)}
