"""What a controller of SkyPilot's managed jobs costs: `data/curated/controller_machines.csv`.

A machine of 4 vCPUs with 4 GB each, on the cloud and in the region of the job: m6i.xlarge,
n2-standard-4 or Standard_D4s_v5 (SkyPilot 0.14.1: `sky/jobs/constants.py`, `sky/catalog`).
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path

from ..csv_rows import build_row, columns_of, read_rows
from ..embedded import CURATED_DIR
from ..types import CatalogueRow

COLUMNS = columns_of("provider,region,instance_type,usd_per_hour,price_date,source")
TABLE = CURATED_DIR / "controller_machines.csv"


class ControllerRow(CatalogueRow):
    """The price of such a machine in one region, on demand."""

    provider: str
    region: str
    instance_type: str
    usd_per_hour: Decimal
    price_date: date
    source: str


def controller_machine(provider: str, region: str) -> ControllerRow | None:
    """Return the machine that a controller takes in a region; None where its price is not known."""
    return _by_place().get((provider, region))


def dearest_controller_usd_per_hour() -> Decimal:
    """Return the highest price of such a machine that is known anywhere, $/h."""
    return max(row.usd_per_hour for row in _by_place().values())


def read_controllers(path: Path = TABLE, *, validate: bool = False) -> list[ControllerRow]:
    """Return the rows of the table.

    Raises:
        ValueError: its columns are others.
    """
    return [build_row(ControllerRow, values, validate) for values in read_rows(path, COLUMNS)]


@cache
def _by_place() -> dict[tuple[str, str], ControllerRow]:
    return {(row.provider, row.region): row for row in read_controllers()}
