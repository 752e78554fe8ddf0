"""Launches summed up by owner, project, provider, month, accelerator or outcome.

Ended launches are summed up by the store's index; the few that are open, whose cost grows with the
clock, are read one by one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal, get_args

from pydantic import ValidationError

from .accounting import (
    node_hours,
    node_hours_in,
    spent_by_month,
    spent_in_usd,
    spent_usd,
)
from .estimates import Store
from .launch_record import Bound, LaunchRecord, bound

By = Literal["owner", "project", "provider", "month", "accelerator", "outcome"]
BYS: tuple[By, ...] = get_args(By)
MICRO = 10**6
"""SQLite sums whole numbers exactly: millionths of a dollar."""
OPEN = "open"
"""What an outcome is called before there is one."""
SUMS = ("ended_microusd", "node_hours", "is_bound", "is_unknown", "in_one_month")
"""Columns of what is known only once a launch has ended."""
KEYS: Mapping[By, str] = {
    "owner": "owner",
    "project": "project",
    "provider": "provider",
    "month": "substr(created_at, 1, 7)",  # Of those that were over in it; the others are read.
    "accelerator": "accelerator",
    "outcome": f"coalesce(outcome, '{OPEN}')",
}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which launches are summed up; None and nothing: all."""

    project: str | None = None
    """In any spelling, as limits count it; the owner too."""
    owner: str | None = None
    outcomes: Sequence[str] = ()
    since: datetime | None = None
    """Made then or later."""


@dataclass(frozen=True, kw_only=True)
class LaunchSum:
    """All launches of one name."""

    name: str | None
    """None where a launch does not say it."""
    launches: int
    """How many."""
    open: int
    """Of them, those that may still cost money."""
    node_hours: float
    """For which machines ran, all attempts."""
    spent_usd: Decimal
    """So far."""
    is_bound: bool
    """Whether a part is the most that it can have cost."""
    is_unknown: bool = False
    """Whether a part is the least that it can have cost: of machines that nobody could ask for."""

    @property
    def bound(self) -> Bound | None:
        """Return what its dollars are; None where they are what was paid."""
        return bound(is_most=self.is_bound, is_least=self.is_unknown)


def launch_sums(store: Store, wanted: Wanted, by: By, *, now: datetime) -> list[LaunchSum]:
    """Return launches summed up by name, the dearest first; months in their order.

    Raises:
        StoreError: the store cannot be read.
    """
    if not store.exists():
        return []
    _sum_up_ended(store)
    condition, values = condition_of(wanted)
    whole = "in_one_month" if by == "month" else "1"
    with store.transaction() as connection:
        rows = connection.execute(
            f"SELECT {KEYS[by]} AS name, count(*) AS launches, sum(node_hours) AS hours,"
            " sum(ended_microusd) AS microusd, max(is_bound) AS is_bound,"
            " max(is_unknown) AS is_unknown FROM launches"
            " INDEXED BY launches_summed_up"
            f" WHERE ended_microusd IS NOT NULL AND {condition} AND {whole} GROUP BY 1",
            values,
        ).fetchall()
        still = connection.execute(
            f"SELECT {KEYS[by]} AS name, record FROM launches"
            f" WHERE (ended_microusd IS NULL OR NOT {whole}) AND {condition}",
            values,
        ).fetchall()
    found = {row["name"]: _ended(row) for row in rows}
    for name, record in _read(still):
        parts = _by_month(record, now) if by == "month" else [_sum_of(name, record, now)]
        for one in parts:
            found[one.name] = _with(found.get(one.name), one)
    if by == "month":
        return sorted(found.values(), key=lambda one: one.name or "")
    return sorted(found.values(), key=lambda one: (-one.spent_usd, one.name or ""))


def sums_of(record: LaunchRecord) -> dict[str, str | int | float | None]:
    """Return what is kept of a launch to sum it up by; sums only once it has ended."""
    provider = provider_of(record)
    if record.is_open:
        return {"provider": provider, **dict.fromkeys(SUMS)}
    # Its attempts have ended, so that no clock counts any more.
    ended = max(
        (one.ended_at or one.asked_at for one in record.attempts), default=record.created_at
    )
    return {
        "provider": provider,
        "ended_microusd": int((spent_usd(record, now=ended) * MICRO).to_integral_value()),
        "node_hours": node_hours(record, now=ended),
        "is_bound": int(any(one.is_bound for one in record.attempts)),
        "is_unknown": int(record.is_unknown),
        "in_one_month": int(len(_months(record, ended)) == 1),
    }


def provider_of(record: LaunchRecord) -> str | None:
    """Return who is paid: where it ran, else where it is tried first; None where not known."""
    tried = [one.infra for one in record.attempts if one.infra]
    place = tried[-1] if tried else record.places[0].infra if record.places else ""
    return place.partition("/")[0].lower() or None


def _sum_up_ended(store: Store) -> None:
    """Fill in the sums of ended launches that an earlier version kept without them."""
    missing = "SELECT run, record FROM launches WHERE ended_microusd IS NULL AND state = 'ended'"
    with store.transaction() as connection:
        if connection.execute(f"{missing} LIMIT 1").fetchone() is None:
            return
    with store.transaction("IMMEDIATE") as connection:
        for row in connection.execute(missing).fetchall():
            record = _parsed(row["record"])
            if record is not None:
                changed = ", ".join(f"{name} = :{name}" for name in ("provider", *SUMS))
                connection.execute(
                    f"UPDATE launches SET {changed} WHERE run = :run",
                    {**sums_of(record), "run": row["run"]},
                )


def condition_of(wanted: Wanted) -> tuple[str, list[str]]:
    """Return the condition in SQL, for a connection of a `Store`, and its values."""
    parts, values = ["1"], []
    for name in ("project", "owner"):
        value = getattr(wanted, name)
        if value is not None:
            # Few, of many launches; without a limit SQLite would compare the names of all.
            known = f"SELECT DISTINCT {name} AS known FROM launches LIMIT -1"
            parts.append(f"{name} IN (SELECT known FROM ({known}) WHERE is_same_name(known, ?))")
            values.append(value)
    if wanted.outcomes:
        parts.append(f"{KEYS['outcome']} IN ({', '.join('?' * len(wanted.outcomes))})")
        values += wanted.outcomes
    if wanted.since is not None:
        parts.append("created_at >= ?")
        values.append(wanted.since.isoformat())
    return " AND ".join(parts), values


def _ended(row: sqlite3.Row) -> LaunchSum:
    return LaunchSum(
        name=row["name"],
        launches=row["launches"],
        open=0,
        node_hours=row["hours"] or 0.0,
        spent_usd=Decimal(row["microusd"] or 0) / MICRO,
        is_bound=bool(row["is_bound"]),
        is_unknown=bool(row["is_unknown"]),
    )


def _sum_of(name: str | None, one: LaunchRecord, now: datetime) -> LaunchSum:
    """Return the sum of one launch."""
    return LaunchSum(
        name=name,
        launches=1,
        open=int(one.is_open),
        node_hours=node_hours(one, now=now),
        spent_usd=spent_usd(one, now=now),
        is_bound=any(attempt.is_bound for attempt in one.attempts),
        is_unknown=one.is_unknown,
    )


def _by_month(record: LaunchRecord, now: datetime) -> list[LaunchSum]:
    """Return what a launch was in each month: itself in that in which it was made.

    Its dollars and hours are in the months in which its machines were paid for, as limits count.
    """
    parts = [record.model_copy(update={"attempts": (one,)}) for one in record.attempts]

    def of(month: str) -> LaunchSum:
        inside = [one for one in parts if month in spent_by_month(one, now=now)]
        is_made = month == made_in(record)
        return LaunchSum(
            name=month,
            launches=int(is_made),
            open=int(record.is_open and is_made),
            node_hours=node_hours_in(record, month, now=now),
            spent_usd=spent_in_usd(record, month, now=now),
            is_bound=any(one.attempts[0].is_bound for one in inside),
            is_unknown=any(one.is_unknown for one in inside),
        )

    return [of(month) for month in sorted(_months(record, now))]


def _months(record: LaunchRecord, now: datetime) -> set[str]:
    """Return the months in which a launch was made, or its machines were paid for (UTC)."""
    return {made_in(record), *spent_by_month(record, now=now)}


def made_in(record: LaunchRecord) -> str:
    """Return the month in which a launch was made, `2026-11` (UTC)."""
    return f"{record.created_at.astimezone(UTC):%Y-%m}"


def _with(found: LaunchSum | None, one: LaunchSum) -> LaunchSum:
    """Return a sum with another of the same name."""
    if found is None:
        return one
    return LaunchSum(
        name=one.name,
        launches=found.launches + one.launches,
        open=found.open + one.open,
        node_hours=found.node_hours + one.node_hours,
        spent_usd=found.spent_usd + one.spent_usd,
        is_bound=found.is_bound or one.is_bound,
        is_unknown=found.is_unknown or one.is_unknown,
    )


def _read(rows: Sequence[sqlite3.Row]) -> Iterator[tuple[str | None, LaunchRecord]]:
    """Yield what can be read; `Ledger.unreadable` names the rest."""
    for row in rows:
        record = _parsed(row["record"])
        if record is not None:
            yield row["name"], record


def _parsed(text: str) -> LaunchRecord | None:
    try:
        return LaunchRecord.model_validate_json(text)
    except ValidationError:
        return None
