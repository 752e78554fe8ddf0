"""A launch as a row of the store: how it is written, read back, and found damaged."""

from __future__ import annotations

import sqlite3

from pydantic import ValidationError

from ...catalog.errors import UsageError
from .estimates import StoreError
from .launch_record import LaunchRecord
from .launch_sums import sums_of
from .spending_limits import SpendingLimits

COLUMNS = (
    "run",
    "created_at",
    "state",
    "cluster",
    "record",
    "plan",
    "project",
    "owner",
    "accelerator",
    "provider",
    "outcome",
    "ended_microusd",
    "node_hours",
    "is_bound",
    "is_unknown",
    "in_one_month",
)


def in_record(key: str) -> str:
    """Return SQL for a value of a record; NULL where that is damaged, which ends no question."""
    return f"CASE WHEN json_valid(record) THEN json_extract(record, '$.{key}') END"


def row_of(record: LaunchRecord) -> dict[str, str | int | float | None]:
    """Return the columns of a launch; its sums only when it has ended and they stay."""
    return {
        "run": record.run,
        "created_at": record.created_at.isoformat(),
        "state": record.state,
        "cluster": record.cluster,
        "record": record.model_dump_json(),
        "plan": record.plan,
        "project": record.project,
        "owner": record.owner,
        "accelerator": record.accelerator,
        "outcome": record.outcome,
        **sums_of(record),
    }


def read_record(connection: sqlite3.Connection, run: str) -> LaunchRecord:
    """Return the record of a launch.

    Raises:
        UsageError: there is no such launch.
        StoreError: its record cannot be read.
    """
    row = connection.execute("SELECT record FROM launches WHERE run = ?", (run,)).fetchone()
    if row is None:
        raise UsageError(f"There is no launch {run}.", fix="See them with `gpuplan history`.")
    record = parsed(row["record"])
    if record is None:
        raise damaged_record(run)
    return record


def all_records(connection: sqlite3.Connection) -> list[tuple[str, LaunchRecord | None]]:
    """Return the runs, newest first, with their records; None where one cannot be read."""
    newest = connection.execute("SELECT run, record FROM launches ORDER BY created_at DESC")
    return [(row["run"], parsed(row["record"])) for row in newest]


def records_for(connection: sqlite3.Connection, limits: SpendingLimits) -> list[LaunchRecord]:
    """Return every launch that limits count.

    Raises:
        StoreError: one cannot be read, so that nobody knows what it has committed.
    """
    rows = all_records(connection)
    if limits.any:
        for run, record in rows:
            if record is None:
                raise damaged_record(run, " and what it costs counts towards the limits")
    return [record for _, record in rows if record is not None]


def parsed(row: str) -> LaunchRecord | None:
    """Return the record that a row holds; None where it cannot be read."""
    try:
        return LaunchRecord.model_validate_json(row)
    except ValidationError:
        return None


def damaged_record(run: str, so: str = "") -> StoreError:
    """Return the error that says so of a record that cannot be read."""
    return StoreError(
        f"The record of {run} in the store cannot be read{so}.",
        fix="upgrade gpuplan if a later one wrote it; else look for its machines with `sky status`"
        " and in the console of its cloud.",
    )


def insert(connection: sqlite3.Connection, record: LaunchRecord) -> None:
    """Add the row of a launch."""
    values = ", ".join(f":{name}" for name in COLUMNS)
    connection.execute(
        f"INSERT INTO launches ({', '.join(COLUMNS)}) VALUES ({values})", row_of(record)
    )


def write(connection: sqlite3.Connection, record: LaunchRecord) -> None:
    """Write a launch over the row that it has."""
    changed = ", ".join(f"{name} = :{name}" for name in COLUMNS if name != "run")
    connection.execute(f"UPDATE launches SET {changed} WHERE run = :run", row_of(record))
