"""Rows of runs that add up to what the runs cost: what rounding each row leaves is settled.

A spreadsheet must get every row from its quantity and its unit price. So the rows that are nearest
to another cent take it, with the quantity that just rounds to it: less than a cent's worth of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from ..cost.run_cost import CENT, UNIT
from .money import NOTHING, QUANTUM, rounded_usd
from .report.rows import Entry

HALF_CENT = CENT / 2


def settled(rows: Sequence[Entry], usd: Decimal) -> list[Entry]:
    """Return rows that add up to an amount, as far as their instance-hours can be rounded to it.

    Args:
        rows: of one occurrence of runs, without tax.
        usd: what they cost together, US dollars, rounded once.
    """
    found = list(rows)
    left = usd - sum((row.usd for row in rows), NOTHING)
    if not left:
        return found
    cent = CENT if left > 0 else -CENT
    moved = [(i, row) for i, one in enumerate(found) if (row := _moved(one, cent)) is not None]
    moved.sort(key=lambda pair: _change_usd(found[pair[0]], pair[1]))
    for place, row in moved[: int(left / cent)]:
        found[place] = row
    return found


def _change_usd(row: Entry, moved: Entry) -> Decimal:
    return abs(moved.quantity - row.quantity) * row.unit_usd


def _moved(row: Entry, cent: Decimal) -> Entry | None:
    """Return a row of hours with the nearest quantity that costs a cent more or less."""
    usd = row.usd + cent
    if row.unit != UNIT or row.unit_usd <= 0 or usd < 0:
        return None
    edge = (row.usd + (HALF_CENT if cent > 0 else -HALF_CENT)) / row.unit_usd
    # A step beyond the edge, so that no spreadsheet's floats fall on the other side of it.
    if cent > 0:
        quantity = edge.quantize(QUANTUM, rounding=ROUND_CEILING) + QUANTUM
    else:
        quantity = edge.quantize(QUANTUM, rounding=ROUND_FLOOR) - QUANTUM
    if quantity <= 0 or rounded_usd(quantity, row.unit_usd) != usd:
        return None
    return row.model_copy(update={"quantity": quantity, "usd": usd})
