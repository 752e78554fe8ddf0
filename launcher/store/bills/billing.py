"""What providers billed for launches, as it was imported: a month of an account replaces itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from ..estimates import Store
from .mappers import BillRow

NOTHING = Decimal(0)


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import came to."""

    rows: int
    """Charges in the files."""
    labelled: int
    """Of them, those with the label of a launch; only these are kept."""
    duplicates: int
    """Of those, charges that were there twice, and count once."""
    months: tuple[str, ...]
    """"aws 123456789012 2027-03": what was replaced."""
    bills: frozenset[tuple[str, str]]
    """Provider and month of each of them, whatever the account."""
    unlabelled_usd: Decimal
    """US dollars of the charges that are of no launch."""


@dataclass(frozen=True, kw_only=True)
class Billed:
    """What was billed for one launch, US dollars."""

    billed_usd: Decimal
    list_usd: Decimal | None
    """At list prices; None where a charge does not say it."""
    effective_usd: Decimal | None
    """With what was paid ahead; None where a charge does not say it."""


def keep_bills(store: Store, rows: Iterable[BillRow], *, at: str) -> Imported:
    """Keep the charges of bills; those of the same account and month that were kept before go.

    Everything is read before anything is changed, in one transaction.

    Args:
        store: where.
        rows: of all files that are imported together.
        at: when, ISO 8601.
    """
    count, duplicates, unlabelled_usd = 0, 0, NOTHING
    months: set[tuple[str, str, str]] = set()
    kept: dict[str, BillRow] = {}
    for row in rows:
        count += 1
        months.add((row.provider, row.account, row.month))
        if row.run is None:
            unlabelled_usd += row.billed_usd
        else:
            duplicates += row.key in kept
            kept[row.key] = row
    with store.transaction("IMMEDIATE") as connection:
        connection.executemany(
            "DELETE FROM billed_charges WHERE provider = ? AND account = ? AND month = ?",
            sorted(months),
        )
        connection.executemany(
            "INSERT INTO billed_charges (provider, account, month, key, run, category, service,"
            " sku, resource, begins, billed_usd, list_usd, effective_usd, imported_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(*_values(row), at) for row in kept.values()],
        )
    return Imported(
        rows=count,
        labelled=len(kept),
        duplicates=duplicates,
        months=tuple(" ".join(one) for one in sorted(months)),
        bills=frozenset((provider, month) for provider, _, month in months),
        unlabelled_usd=unlabelled_usd,
    )


def billed_months(store: Store) -> frozenset[tuple[str, str]]:
    """Return the label of each launch with each month in which a charge has it."""
    with store.transaction() as connection:
        rows = connection.execute("SELECT DISTINCT run, month FROM billed_charges").fetchall()
    return frozenset((row["run"], row["month"]) for row in rows)


def billed_by_run(store: Store) -> Mapping[str, Billed]:
    """Return what was billed for each launch, by its label; tax and credits included."""
    if not store.exists():
        return {}
    with store.transaction() as connection:
        rows = connection.execute(
            "SELECT run, category, billed_usd, list_usd, effective_usd FROM billed_charges"
        ).fetchall()
    by_run: dict[str, list[sqlite3.Row]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(row)
    return {run: _billed(of) for run, of in by_run.items()}


def _billed(rows: list[sqlite3.Row]) -> Billed:
    usage = [row for row in rows if row["category"] == "Usage"]
    return Billed(
        billed_usd=sum((Decimal(row["billed_usd"]) for row in rows), NOTHING),
        list_usd=_sum([row["list_usd"] for row in usage]),
        effective_usd=_sum([row["effective_usd"] for row in rows]),
    )


def _sum(values: list[str | None]) -> Decimal | None:
    """Return the sum; None where there is nothing or a part is not known."""
    known = [Decimal(value) for value in values if value is not None]
    return sum(known, NOTHING) if known and len(known) == len(values) else None


def _values(row: BillRow) -> tuple[str | None, ...]:
    return (
        row.provider,
        row.account,
        row.month,
        row.key,
        row.run,
        row.category,
        row.service,
        row.sku,
        row.resource,
        row.begins,
        str(row.billed_usd),
        None if row.list_usd is None else str(row.list_usd),
        None if row.effective_usd is None else str(row.effective_usd),
    )
