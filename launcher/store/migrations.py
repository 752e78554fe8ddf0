"""How the store's tables came to be: one function a version, applied in order, each exactly once.

A migration that has been released is never edited; a change is a new function at the end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from secrets import token_hex

from ...catalog.errors import GpuplanError

Migration = Callable[[sqlite3.Connection], None]


class StoreError(GpuplanError):
    """The store cannot be read or written."""


class StoreTooNewError(StoreError):
    """The store was written by a later gpuplan than this one."""


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables up to this version, inside the caller's transaction.

    Raises:
        StoreTooNewError: A later gpuplan has changed them already.
    """
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise StoreTooNewError(
            f"The plan store has version {version}; this gpuplan knows {len(MIGRATIONS)}.",
            fix="Upgrade gpuplan, or choose another folder with GPUPLAN_HOME.",
        )
    for migration in MIGRATIONS[version:]:
        migration(connection)
    if version < len(MIGRATIONS):
        connection.execute("DELETE FROM schema_version")
        connection.execute("INSERT INTO schema_version (version) VALUES (?)", (len(MIGRATIONS),))


def _version(connection: sqlite3.Connection) -> int:
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'"
    if connection.execute(known).fetchone() is None:
        return 0
    (version,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    try:
        return int(version or 0)
    except ValueError:
        raise StoreError(
            f"The plan store's own version cannot be read: {version!r}.",
            fix="put back a copy of the store; look for machines with `sky status` meanwhile.",
        ) from None


def _make_estimates_and_plans(connection: sqlite3.Connection) -> None:
    statements = (
        "CREATE TABLE schema_version (version INTEGER NOT NULL)",
        """CREATE TABLE estimates (
            id INTEGER PRIMARY KEY,
            inputs_hash TEXT NOT NULL UNIQUE,
            kept_at TEXT NOT NULL,
            snapshot_date TEXT NOT NULL,
            facts TEXT NOT NULL
        )""",
        "CREATE TABLE plans (id TEXT PRIMARY KEY, content TEXT NOT NULL)",
        """CREATE TABLE listed_plans (
            estimate_id INTEGER NOT NULL REFERENCES estimates (id),
            position INTEGER NOT NULL,
            plan_id TEXT NOT NULL REFERENCES plans (id),
            tie_with_previous INTEGER NOT NULL,
            PRIMARY KEY (estimate_id, position)
        )""",
        "CREATE INDEX listed_plans_by_plan ON listed_plans (plan_id)",
        "CREATE INDEX estimates_by_time ON estimates (kept_at)",
    )
    for statement in statements:
        connection.execute(statement)


def _keep_where_an_estimate_is_from(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE estimates ADD COLUMN folder TEXT")
    connection.execute("ALTER TABLE estimates ADD COLUMN origin TEXT")


def _keep_launches(connection: sqlite3.Connection) -> None:
    statements = (
        """CREATE TABLE launches (
            run TEXT PRIMARY KEY,
            created_at TEXT NOT NULL,
            state TEXT NOT NULL,
            cluster TEXT NOT NULL UNIQUE,
            record TEXT NOT NULL
        )""",
        """CREATE TABLE launch_events (
            id INTEGER PRIMARY KEY,
            run TEXT NOT NULL REFERENCES launches (run),
            at TEXT NOT NULL,
            what TEXT NOT NULL
        )""",
        "CREATE INDEX launch_events_by_run ON launch_events (run)",
    )
    for statement in statements:
        connection.execute(statement)


def _keep_what_runs_measured(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE measured_steps (
            run TEXT PRIMARY KEY,
            workload TEXT NOT NULL,
            plan_key TEXT NOT NULL,
            at TEXT NOT NULL,
            step_time_s REAL NOT NULL,
            record TEXT NOT NULL
        )"""
    )
    connection.execute("CREATE INDEX measured_steps_by_workload ON measured_steps (workload)")


def _name_the_store(connection: sqlite3.Connection) -> None:
    """Give the store an id: machines carry it, so that no other store takes them for its own."""
    connection.execute("CREATE TABLE store_identity (id TEXT NOT NULL)")
    connection.execute("INSERT INTO store_identity (id) VALUES (?)", (token_hex(8),))


def _keep_what_was_billed(connection: sqlite3.Connection) -> None:
    """Make room for the charges of bills; dollars are text, exact to the last digit of a bill."""
    connection.execute(
        """CREATE TABLE billed_charges (
            provider TEXT NOT NULL,
            account TEXT NOT NULL,
            month TEXT NOT NULL,
            key TEXT NOT NULL,
            run TEXT NOT NULL,
            category TEXT NOT NULL,
            service TEXT NOT NULL,
            sku TEXT NOT NULL,
            resource TEXT NOT NULL,
            begins TEXT NOT NULL,
            billed_usd TEXT NOT NULL,
            list_usd TEXT,
            effective_usd TEXT,
            imported_at TEXT NOT NULL,
            PRIMARY KEY (provider, account, month, key)
        )"""
    )
    connection.execute("CREATE INDEX billed_charges_by_run ON billed_charges (run)")


def _sum_up_launches(connection: sqlite3.Connection) -> None:
    """Keep beside each launch what it is summed up by: records need not be read for that.

    What an ended launch cost is filled in when it is first asked for; the index holds all that the
    sums need, as a scan of the records themselves takes a second at 100,000 launches.
    """
    for column in (
        "plan TEXT",
        "project TEXT",
        "owner TEXT",
        "accelerator TEXT",
        "provider TEXT",
        "outcome TEXT",
        "ended_microusd INTEGER",
        "node_hours REAL",
        "is_bound INTEGER",
    ):
        connection.execute(f"ALTER TABLE launches ADD COLUMN {column}")
    connection.execute(
        """UPDATE launches SET
            plan = json_extract(record, '$.plan'),
            project = json_extract(record, '$.project'),
            owner = json_extract(record, '$.owner'),
            accelerator = json_extract(record, '$.accelerator'),
            outcome = json_extract(record, '$.outcome')
        WHERE json_valid(record)"""
    )
    for statement in (
        """CREATE INDEX launches_summed_up ON launches (
            created_at, project, owner, provider, accelerator, outcome, ended_microusd, node_hours,
            is_bound
        )""",
        "CREATE INDEX launches_not_summed_up ON launches (state) WHERE ended_microusd IS NULL",
        "CREATE INDEX launches_by_plan ON launches (plan)",
    ):
        connection.execute(statement)


def _sum_up_months(connection: sqlite3.Connection) -> None:
    """Keep of each ended launch whether it was over in the month (UTC) in which it was made.

    A launch that was not costs in each month as long as it was in it, which its record alone says.
    Of none that was kept until now is it unknown what became of its machines.
    """
    for column in ("in_one_month INTEGER", "is_unknown INTEGER"):
        connection.execute(f"ALTER TABLE launches ADD COLUMN {column}")
    connection.execute(
        """UPDATE launches SET is_unknown = 0, in_one_month = substr(created_at, 1, 7) = substr(
            coalesce(
                json_extract(record, '$.attempts[#-1].ended_at'),
                json_extract(record, '$.attempts[#-1].asked_at'),
                created_at
            ), 1, 7)
        WHERE ended_microusd IS NOT NULL AND json_valid(record)"""
    )
    connection.execute("DROP INDEX launches_summed_up")
    connection.execute(
        """CREATE INDEX launches_summed_up ON launches (
            created_at, project, owner, provider, accelerator, outcome, ended_microusd, node_hours,
            is_bound, is_unknown, in_one_month
        )"""
    )


MIGRATIONS: tuple[Migration, ...] = (
    _make_estimates_and_plans,
    _keep_where_an_estimate_is_from,
    _keep_launches,
    _keep_what_runs_measured,
    _name_the_store,
    _keep_what_was_billed,
    _sum_up_launches,
    _sum_up_months,
)
