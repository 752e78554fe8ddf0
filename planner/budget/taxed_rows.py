"""Rows of a ledger with their share of the tax: what moves a row moves the tax on it, no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from .money import NOTHING
from .report.rows import Entry


def taxed_rows(entries: Iterable[Entry]) -> Iterator[tuple[Entry, Decimal]]:
    """Yield the rows with what each costs and the tax on it, US dollars, not rounded.

    The tax of an experiment is one row a month, on all its rows of that month: it is shared among
    them by what they cost. That of what belongs to no experiment is a row of the ledger for each of
    its rows, and stays one here. Together they are the sum of the entries.
    """
    entries = tuple(entries)
    net: dict[tuple[str, str], Decimal] = {}
    tax: dict[tuple[str, str], Decimal] = {}
    for row in entries:
        if row.experiment is not None:
            kind = tax if row.kind == "tax" else net
            key = (row.experiment, str(row.month))
            kind[key] = kind.get(key, NOTHING) + row.usd
    for row in entries:
        if row.experiment is None:
            yield row, row.usd
        elif row.kind != "tax":
            key = (row.experiment, str(row.month))
            share = tax.get(key, NOTHING) / net[key] if net[key] else NOTHING
            yield row, row.usd * (1 + share)
