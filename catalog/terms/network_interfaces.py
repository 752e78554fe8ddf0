"""How many network interfaces a machine has for traffic between nodes, at most.

`data/curated/network_interfaces.csv`: of AWS, interfaces of the Elastic Fabric Adapter (EFA).
"""

from __future__ import annotations

from functools import cache

from ..csv_rows import build_row, columns_of, read_rows
from ..embedded import CURATED_DIR
from ..types import CatalogueRow

COLUMNS = columns_of("provider,instance_type,interfaces,source")
TABLE = CURATED_DIR / "network_interfaces.csv"


class InterfacesRow(CatalogueRow):
    """The most network interfaces that a machine of one type can have."""

    provider: str
    instance_type: str
    interfaces: int
    source: str


def most_interfaces(provider: str, instance_type: str) -> int | None:
    """Return the most that machines of a type can have; None where that is not known.

    >>> most_interfaces("aws", "p5.48xlarge")
    32
    """
    row = _by_type().get((provider, instance_type))
    return None if row is None else row.interfaces


@cache
def _by_type() -> dict[tuple[str, str], InterfacesRow]:
    rows = [build_row(InterfacesRow, values, True) for values in read_rows(TABLE, COLUMNS)]
    return {(row.provider, row.instance_type): row for row in rows}
