"""Spot prices over time, from the user's own snapshots: each price with the day it was seen."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import date
from decimal import Decimal
from typing import Any

from ..price_folder import snapshot_files

Where = tuple[str, str, str]
"""Provider, region and instance type."""
MOST_SNAPSHOTS = 60
"""The newest that are read: a file takes some 30 ms."""
KEPT = "spot price of "
"""How the note of an offer begins whose spot price is an older one than its date."""


def spot_history(places: Collection[Where]) -> dict[Where, dict[date, Decimal]]:
    """Return the spot prices of each place by day, as far as snapshots have them.

    A price that a refresh has only kept of an earlier one counts on its own day alone. A file that
    cannot be read says nothing here; the newest is checked where prices are taken from it.
    """
    found: dict[Where, dict[date, Decimal]] = {}
    if not places:
        return found
    for path in snapshot_files()[-MOST_SNAPSHOTS:]:
        try:
            rows = json.loads(path.read_bytes(), parse_float=Decimal)["offers"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for row in rows:
            where = (row.get("provider"), row.get("region"), row.get("instance_type"))
            usd = _usd(row) if where in places else None
            if usd is not None:
                found.setdefault(where, {})[date.fromisoformat(row["price_date"])] = usd
    return found


def _usd(row: dict[str, Any]) -> Decimal | None:
    """Return the market's spot price of a row that is of the row's own day; None without one."""
    usd = row.get("spot_usd_per_hour")
    notes = (row.get("note") or "").split("; ")
    if usd is None or not row.get("spot_is_market") or not row.get("price_date"):
        return None
    if any(note.startswith(KEPT) for note in notes):
        return None
    usd = Decimal(str(usd))
    return usd if usd > 0 else None
