"""What gpuplan remembers: every estimate and its plans, in one SQLite file of the data folder.

A plan is stored once under its id (the hash of its content); an estimate is a question's hash, a
price snapshot and an ordered list of plan ids. Asking the same question again replaces the old
answer. Several processes may write at once: each write is one short transaction that waits for
the others.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from pydantic import ValidationError

from ...catalog.errors import UsageError
from ...catalog.files import make_private, narrow
from ...catalog.paths import data_dir
from ...catalog.text.same_name import is_same_name
from ...planner.plan.answer.estimate import Estimate
from ...planner.plan.plan import Plan
from .migrations import StoreError, migrate
from .origin import Origin
from .sourced_plan import SourcedPlan

__all__ = ["KEPT_PLANS", "KeptEstimate", "Store", "StoreError"]

KEPT_PLANS = 100
STORE_FILE = "gpuplan.sqlite3"
LOCK_TIMEOUT_S = 30.0
"""SQLite asks again at intervals and lets nobody queue: of many commands at once, on a busy
machine, one may wait for more than ten seconds."""
SHORTEST_PREFIX = 2

TransactionKind = Literal["DEFERRED", "IMMEDIATE"]
"""A reader that may find the file read-only, or a writer that waits for the other writers."""

LeaveOut = Callable[[StoreError], object]
"""Called with what cannot be read; raises it, or returns so that the rest is read."""

_NEWEST_FIRST = "ORDER BY kept_at DESC, estimates.id DESC"


@dataclass(frozen=True)
class KeptEstimate:
    """One estimate with its plans, and what it was made from."""

    estimate: Estimate
    origin: Origin


class Store:
    """The store in one file; made and brought up to date on first use.

    Raises (from every method):
        StoreError: The file cannot be opened, read or written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or data_dir() / STORE_FILE

    def exists(self) -> bool:
        """Return whether anything was ever kept."""
        try:
            return self.path.exists()
        except OSError as error:  # Of a folder that may not be entered.
            raise _unusable(self.path, error) from error

    def id(self) -> str:
        """Return the random id of this store, made with it and kept in it."""
        with self.transaction("IMMEDIATE") as connection:
            return _read_id(connection)

    def known_id(self) -> str | None:
        """Return the id of this store without making one; None where there is no store yet."""
        if not self.exists():
            return None
        with self.transaction() as connection:
            return _read_id(connection)

    def keep(self, estimate: Estimate, *, inputs_hash: str, origin: Origin | None = None) -> None:
        """Keep an estimate and its first 100 plans, in place of an older answer to the same."""
        plans = estimate.plans[:KEPT_PLANS]
        facts = estimate.model_copy(update={"plans": ()}).model_dump_json()
        with self.transaction("IMMEDIATE") as connection:
            _forget(connection, inputs_hash)
            row = {
                "inputs_hash": inputs_hash,
                "kept_at": estimate.generated_at,
                "snapshot_date": estimate.catalog.snapshot_date.isoformat(),
                "facts": facts,
                "folder": None if origin is None else origin.folder,
                "origin": None if origin is None else origin.model_dump_json(),
            }
            estimate_id = connection.execute(
                "INSERT INTO estimates"
                " (inputs_hash, kept_at, snapshot_date, facts, folder, origin) VALUES"
                " (:inputs_hash, :kept_at, :snapshot_date, :facts, :folder, :origin)",
                row,
            ).lastrowid
            connection.executemany(
                "INSERT INTO plans (id, content) VALUES (?, ?)"
                # One that cannot be read any more is repaired by asking again.
                " ON CONFLICT DO UPDATE SET content = excluded.content",
                [(plan.id, plan.model_dump_json()) for plan in plans],
            )
            connection.executemany(
                "INSERT INTO listed_plans (estimate_id, position, plan_id, tie_with_previous)"
                " VALUES (?, ?, ?, ?)",
                [(estimate_id, one.position, one.id, one.tie_with_previous) for one in plans],
            )

    def estimates(
        self, *, limit: int | None = None, leave_out: LeaveOut = lambda _error: None
    ) -> list[Estimate]:
        """Return the kept estimates with their plans, newest first, as far as they can be read.

        Args:
            limit: how many; None: all.
            leave_out: called with each estimate or plan that cannot be read.
        """
        if not self.exists():
            return []
        with self.transaction() as connection:
            rows = connection.execute(
                f"SELECT id, kept_at, facts FROM estimates {_NEWEST_FIRST} LIMIT ?",
                (-1 if limit is None else limit,),
            ).fetchall()
            found = [_read_estimate(connection, row, leave_out) for row in rows]
        return [one for one in found if one is not None]

    def newest_of(self, folder: Path) -> KeptEstimate | None:
        """Return the newest estimate that was made in a folder; None if there is none."""
        if not self.exists():
            return None
        with self.transaction() as connection:
            row = connection.execute(
                "SELECT id, kept_at, facts, origin FROM estimates WHERE folder = ?"
                f" {_NEWEST_FIRST} LIMIT 1",
                (str(folder),),
            ).fetchone()
            if row is None:
                return None
            estimate = _read_estimate(connection, row, _refuse)
            assert estimate is not None, "what cannot be read is refused"
            return KeptEstimate(estimate=estimate, origin=Origin.model_validate_json(row["origin"]))

    def origins(self) -> list[Origin]:
        """Return what kept estimates were made from, newest first, as far as it can be read."""
        if not self.exists():
            return []
        with self.transaction() as connection:
            rows = connection.execute(
                f"SELECT origin FROM estimates WHERE origin IS NOT NULL {_NEWEST_FIRST}"
            ).fetchall()
        found: list[Origin] = []
        for row in rows:
            with suppress(ValidationError):
                found.append(Origin.model_validate_json(row["origin"]))
        return found

    def find_plan(self, prefix: str) -> SourcedPlan:
        """Return the one kept plan whose id begins with `prefix`; its estimate holds only it.

        Raises:
            UsageError: No kept plan or several begin with it.
        """
        wanted = prefix.strip().lower()
        if len(wanted) < SHORTEST_PREFIX:
            raise UsageError(
                f"{prefix!r} is too short for a plan id.", fix="Give two characters or more."
            )
        if not self.exists():
            raise _unknown_plan(prefix)
        with self.transaction() as connection:
            found = connection.execute(
                "SELECT id FROM plans WHERE substr(id, 1, length(:prefix)) = :prefix"
                " ORDER BY id LIMIT 6",
                {"prefix": wanted},
            )
            ids = [row["id"] for row in found]
            if not ids:
                raise _unknown_plan(prefix)
            if len(ids) > 1:
                raise UsageError(
                    f"Several plans begin with {prefix!r}: {', '.join(ids[:5])}"
                    f"{' …' if len(ids) > 5 else ''}.",
                    fix="Give more of the id.",
                )
            return _read_plan(connection, ids[0])

    @contextmanager
    def transaction(self, kind: TransactionKind = "DEFERRED") -> Iterator[sqlite3.Connection]:
        """Open the file, brought up to date, for one transaction; an error takes it all back."""
        try:
            _make_private_file(self.path)
            # No isolation level: the driver itself would open every transaction as a reader, and a
            # reader that goes on to write while another does is refused at once, without waiting.
            connection = sqlite3.connect(self.path, timeout=LOCK_TIMEOUT_S, isolation_level=None)
            # To close what is not committed takes it back.
            with closing(connection):
                connection.row_factory = sqlite3.Row
                connection.create_function("is_same_name", 2, _is_same_name, deterministic=True)
                connection.execute(f"BEGIN {kind}")
                migrate(connection)
                yield connection
                connection.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            raise _unusable(self.path, error) from error


def _is_same_name(one: str | None, other: str) -> bool:
    return one is not None and is_same_name(one, other)


def _make_private_file(path: Path) -> None:
    """Make the file of a store, whose launches nobody else reads; one that is there is narrowed.

    Its folder stays as it is where there is one: who set GPUPLAN_HOME chose its permissions.
    """
    if not path.parent.is_dir():
        make_private(path.parent)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    narrow(path)


def _unusable(path: Path, error: Exception) -> StoreError:
    reason = str(error)
    if "database is locked" in reason:
        return StoreError(
            f"The plan store {path} cannot be used: another command has held it for too long.",
            # Not another folder: limits of what is spent count the launches of this one.
            fix=f"Run it again when that command has ended; `fuser {path}` names it.",
        )
    fix = "Make room or give write permission there"
    if "not a database" in reason or "malformed" in reason:
        fix = "Move this damaged file away"
    return StoreError(
        f"The plan store {path} cannot be used: {reason}.",
        fix=f"{fix}, or choose another folder with GPUPLAN_HOME.",
    )


def _read_id(connection: sqlite3.Connection) -> str:
    return str(connection.execute("SELECT id FROM store_identity").fetchone()["id"])


def _forget(connection: sqlite3.Connection, inputs_hash: str) -> None:
    old = connection.execute(
        "SELECT id FROM estimates WHERE inputs_hash = ?", (inputs_hash,)
    ).fetchone()
    if old is None:
        return
    connection.execute("DELETE FROM listed_plans WHERE estimate_id = ?", (old["id"],))
    connection.execute("DELETE FROM estimates WHERE id = ?", (old["id"],))
    connection.execute("DELETE FROM plans WHERE id NOT IN (SELECT plan_id FROM listed_plans)")


def _read_estimate(
    connection: sqlite3.Connection, row: sqlite3.Row, leave_out: LeaveOut
) -> Estimate | None:
    listed = connection.execute(
        "SELECT plans.id AS plan_id, content, position, tie_with_previous"
        " FROM plans JOIN listed_plans ON plans.id = plan_id"
        " WHERE estimate_id = ? ORDER BY position",
        (row["id"],),
    ).fetchall()
    try:
        estimate = _facts(row)
    except StoreError as error:
        leave_out(error)
        return None
    plans: list[Plan] = []
    for one in listed:
        try:
            plans.append(_placed(one))
        except StoreError as error:
            leave_out(error)
    return estimate.model_copy(update={"plans": tuple(plans)})


def _read_plan(connection: sqlite3.Connection, plan_id: str) -> SourcedPlan:
    row = connection.execute(
        "SELECT plans.id AS plan_id, content, position, tie_with_previous, kept_at, facts, origin"
        " FROM plans JOIN listed_plans ON plan_id = plans.id"
        " JOIN estimates ON estimates.id = estimate_id"
        f" WHERE plans.id = ? {_NEWEST_FIRST} LIMIT 1",
        (plan_id,),
    ).fetchone()
    plan = _placed(row)
    estimate = _facts(row).model_copy(update={"plans": (plan,)})
    origin = None if row["origin"] is None else Origin.model_validate_json(row["origin"])
    return SourcedPlan(plan=plan, estimate=estimate, origin=origin)


def _placed(row: sqlite3.Row) -> Plan:
    place = {
        "position": row["position"],
        "tie_with_previous": bool(row["tie_with_previous"]),
    }
    try:
        return Plan.model_validate_json(row["content"]).model_copy(update=place)
    except ValidationError:
        raise _unreadable(f"The kept plan {row['plan_id']}") from None


def _facts(row: sqlite3.Row) -> Estimate:
    """Return an estimate without its plans."""
    try:
        return Estimate.model_validate_json(row["facts"])
    except ValidationError:
        raise _unreadable(f"The estimate kept at {row['kept_at']}, with its plans,") from None


def _unreadable(what: str) -> StoreError:
    return StoreError(
        f"{what} cannot be read: it is damaged, or of another version of gpuplan.",
        fix="ask its question again with `gpuplan estimate`, which replaces it.",
    )


def _refuse(error: StoreError) -> NoReturn:
    raise error


def _unknown_plan(prefix: str) -> UsageError:
    return UsageError(
        f"No kept plan has an id that begins with {prefix!r}.", fix="See them with `gpuplan plans`."
    )
