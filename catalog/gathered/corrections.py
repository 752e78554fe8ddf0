"""What the gathered tables got wrong or left out: `data/curated/corrections.csv`."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from .convert import Cells

FILE = "corrections.csv"
ADDED = "note+"
"""The column of a correction that adds to a note, where others take the place of what is there."""


class Corrections:
    """Cells of our schema that replace those of the gathered tables."""

    def __init__(self, curated_dir: Path) -> None:
        with (curated_dir / FILE).open(newline="", encoding="utf-8") as file:
            self._rows = tuple(csv.DictReader(file))

    def corrected(self, table: str, rows: Iterable[Cells]) -> list[Cells]:
        """Return the rows of one table ("offers", "instances") with their corrections."""
        return [self._corrected(table, row) for row in rows]

    def _corrected(self, table: str, row: Cells) -> Cells:
        found = dict(row)
        for one in self._rows:
            if (one["table"], one["provider"]) != (table, row["provider"]):
                continue
            if not fnmatchcase(row["instance_type"], one["instance_type"]):
                continue
            if one["column"] == ADDED:
                found["note"] = "; ".join(filter(None, (found["note"], one["value"])))
            else:
                found[one["column"]] = one["value"]
        return found
