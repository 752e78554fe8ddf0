"""What the catalogue's answers share: a table with notes below, JSON, CSV, and figures as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from textwrap import wrap
from typing import Any

from pydantic import BaseModel

from ....catalog.listing.offers import BestPrice
from ...terminal.output import Screen
from .grid import Grid, markdown_table, text_table

UNKNOWN = "–"  # noqa: RUF001
APART = "≥"
"""Before a price that is that of an accelerator alone."""
APART_LEGEND = "≥ vCPUs and memory are billed apart"
LEGEND = f"{UNKNOWN} unknown"


def with_notes(grid: Grid, notes: list[str], form: str, screen: Screen) -> str:
    """Return the grid as table or markdown, with the notes below it wrapped to the screen."""
    if form == "markdown":
        table = markdown_table(grid) if grid.rows else ""
        return table + "\n" + "\n".join(notes) + "\n"
    table = text_table(grid, screen) + "\n" if grid.rows else ""
    return table + "".join(f"{line}\n" for note in notes for line in _wrapped(note, screen.width))


def to_json(model: BaseModel) -> str:
    """Return the model as indented JSON; what is unknown is null."""
    return model.model_dump_json(indent=2) + "\n"


def to_csv(model: type[BaseModel], rows: Iterable[BaseModel]) -> str:
    """Return the rows as CSV: nested values as `outer.inner` columns, lists joined with spaces."""
    flat = [_flat(row.model_dump(mode="json")) for row in rows]
    columns: dict[str, None] = dict.fromkeys(name for row in flat for name in row)
    if not flat:
        columns = dict.fromkeys(model.model_fields)
    # Where one row has a nested value, `outer` alone (None in the other rows) says nothing.
    columns = {
        name: None for name in columns if not any(other.startswith(f"{name}.") for other in columns)
    }
    stream = io.StringIO()
    writer = csv.DictWriter(
        stream, list(columns), lineterminator="\n", restval="", extrasaction="ignore"
    )
    writer.writeheader()
    writer.writerows(flat)
    return stream.getvalue()


def usd_text(usd: Decimal | None) -> str:
    """Return a stated price as vendors print it, to the cent, or with three decimals below $1."""
    if usd is None:
        return UNKNOWN
    if usd < Decimal("0.001"):
        return f"{usd:.1e}"
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.3f}"


def best_text(price: BestPrice | None) -> str:
    """Return the lowest price of one accelerator, $/h; ≥ where it is that of the device alone."""
    text = usd_text(price.usd_per_accelerator_hour if price else None)
    return f"{APART}{text}" if price is not None and price.is_host_apart else text


def figure(value: float | None, unit: float, spec: str, *, missing: str = UNKNOWN) -> str:
    """Return a quantity in a unit, formatted, or what stands for an unknown one."""
    return missing if value is None else format(value / unit, spec)


def count_text(number: float) -> str:
    """Return a number of accelerators: "8", or "0.25" of a sliced one."""
    return f"{number:g}"


def dated(snapshot: date, oldest: date | None = None, newest: date | None = None) -> str:
    """Return the line that says how old the prices are."""
    span = f"{oldest}" if oldest == newest else f"{oldest} to {newest}"
    prices = f", prices of {span}" if oldest else ""
    return f"Snapshot of {snapshot}{prices}: check before you spend."


def _wrapped(note: str, width: int) -> list[str]:
    return wrap(note, max(40, min(width, 120)), break_on_hyphens=False)


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            cells |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            cells[prefix + name] = " ".join(map(str, value))
        else:
            cells[prefix + name] = value
    return cells
