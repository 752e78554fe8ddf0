"""Sums of launches by owner, project, provider, month, accelerator or outcome."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from decimal import Decimal

from rich.text import Text

from ....catalog.text.quantity import UNKNOWN
from ....launcher.store.launch_record import MARKS
from ....launcher.store.launch_sums import By, LaunchSum
from ..text.columns import Align, aligned, column_widths

ALIGNS: tuple[Align, ...] = ("left", "right", "right", "right", "right")


def render_sums(found: Sequence[LaunchSum], by: By, *, limit: int | None) -> list[Text]:
    """Return the sums as lines of a terminal, with the total of all of them."""
    if not found:
        return [Text("No launch was made yet, or none is wanted.")]
    head = (by, "launches", "open", "node hours", "spent")
    rows = [head, *(_cells(one) for one in found[:limit]), _cells(whole_of(found))]
    widths = column_widths(rows)
    first, *body, last = (aligned(row, widths, ALIGNS) for row in rows)
    return [Text(first, style="bold"), *map(Text, body), Text(last, style="bold")]


def sums_json(found: Sequence[LaunchSum], by: By) -> str:
    """Return the sums as JSON."""
    rows = [
        {
            "name": one.name,
            "launches": one.launches,
            "open": one.open,
            "node_hours": one.node_hours,
            "spent_usd": float(one.spent_usd),
            "is_bound": one.is_bound,
            "is_unknown": one.is_unknown,
        }
        for one in found
    ]
    return json.dumps({"schema_version": "1.0", "by": by, "sums": rows}, indent=2) + "\n"


def sums_csv(found: Sequence[LaunchSum], by: By) -> str:
    """Return the sums as CSV, a row each; unknown is empty, and no cell is a formula."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([by, "launches", "open", "node_hours", "spent_usd", "is_bound", "is_unknown"])
    for one in found:
        name = one.name or ""
        safe = f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name
        hours = f"{one.node_hours:.4f}"
        usd, marks = f"{one.spent_usd:.2f}", (one.is_bound, one.is_unknown)
        writer.writerow([safe, one.launches, one.open, hours, usd, *marks])
    return stream.getvalue()


def _cells(one: LaunchSum) -> tuple[str, ...]:
    mark = MARKS[one.bound]
    return (
        one.name or UNKNOWN,
        f"{one.launches:,}",
        f"{one.open:,}",
        f"{one.node_hours:,.2f}",
        f"{mark}${one.spent_usd:,.2f}",
    )


def whole_of(found: Sequence[LaunchSum]) -> LaunchSum:
    """Return the sum of all."""
    return LaunchSum(
        name="total",
        launches=sum(one.launches for one in found),
        open=sum(one.open for one in found),
        node_hours=sum(one.node_hours for one in found),
        spent_usd=sum((one.spent_usd for one in found), Decimal(0)),
        is_bound=any(one.is_bound for one in found),
        is_unknown=any(one.is_unknown for one in found),
    )
