"""What gpuplan remembers: every estimate and its plans, in one SQLite file of the data folder.

A plan is stored once under its id (the hash of its content); an estimate is a question's hash, a
price snapshot and an ordered list of plan ids. Asking the same question again replaces the old
answer. Several processes may write at once: each write is one short transaction that waits for
the others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError

from ...catalog.errors import UsageError
from ...catalog.paths import data_dir
from ...planner.plan.plan import Estimate, Plan
from .migrations import StoreError, migrate
from .origin import Origin
from .sourced_plan import SourcedPlan

__all__ = ["KEPT_PLANS", "KeptEstimate", "Store", "StoreError"]

KEPT_PLANS = 100
STORE_FILE = "gpuplan.sqlite3"
LOCK_TIMEOUT_S = 10.0
SHORTEST_PREFIX = 2

TransactionKind = Literal["DEFERRED", "IMMEDIATE"]
"""A reader that may find the file read-only, or a writer that waits for the other writers."""

_tables = sa.MetaData()
_estimates = sa.Table(
    "estimates",
    _tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("inputs_hash", sa.Text, unique=True),
    sa.Column("kept_at", sa.Text),
    sa.Column("snapshot_date", sa.Text),
    sa.Column("facts", sa.Text),
    sa.Column("folder", sa.Text),
    sa.Column("origin", sa.Text),
)
_plans = sa.Table(
    "plans", _tables, sa.Column("id", sa.Text, primary_key=True), sa.Column("content", sa.Text)
)
_listed = sa.Table(
    "listed_plans",
    _tables,
    sa.Column("estimate_id", sa.Integer),
    sa.Column("position", sa.Integer),
    sa.Column("plan_id", sa.Text),
    sa.Column("tie_with_previous", sa.Boolean),
)
_identity = sa.Table("store_identity", _tables, sa.Column("id", sa.Text))


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

    def id(self) -> str:
        """Return the random id of this store, made with it and kept in it."""
        with self.transaction("IMMEDIATE") as connection:
            return _read_id(connection)

    def known_id(self) -> str | None:
        """Return the id of this store without making one; None where there is no store yet."""
        if not self.path.exists():
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
            inserted = connection.execute(_estimates.insert(), row).inserted_primary_key
            assert inserted is not None
            if not plans:
                return
            connection.execute(
                insert(_plans).on_conflict_do_nothing(),
                [{"id": plan.id, "content": plan.model_dump_json()} for plan in plans],
            )
            connection.execute(_listed.insert(), [_listing(inserted[0], plan) for plan in plans])

    def estimates(self, *, limit: int | None = None) -> list[Estimate]:
        """Return the kept estimates with their plans, newest first."""
        if not self.path.exists():
            return []
        newest = (
            sa.select(_estimates)
            .order_by(_estimates.c.kept_at.desc(), _estimates.c.id.desc())
            .limit(limit)
        )
        with self.transaction() as connection:
            rows = connection.execute(newest).all()
            return [_read_estimate(connection, row.id, row.facts) for row in rows]

    def newest_of(self, folder: Path) -> KeptEstimate | None:
        """Return the newest estimate that was made in a folder; None if there is none."""
        if not self.path.exists():
            return None
        newest = (
            sa.select(_estimates)
            .where(_estimates.c.folder == str(folder))
            .order_by(_estimates.c.kept_at.desc(), _estimates.c.id.desc())
            .limit(1)
        )
        with self.transaction() as connection:
            row = connection.execute(newest).first()
            if row is None:
                return None
            return KeptEstimate(
                estimate=_read_estimate(connection, row.id, row.facts),
                origin=Origin.model_validate_json(row.origin),
            )

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
        if not self.path.exists():
            raise _unknown_plan(prefix)
        with self.transaction() as connection:
            begins = _plans.c.id.startswith(wanted, autoescape=True)
            ids = connection.scalars(sa.select(_plans.c.id).where(begins).limit(6)).all()
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
    def transaction(self, kind: TransactionKind = "DEFERRED") -> Iterator[sa.Connection]:
        """Open the file, brought up to date, for one transaction."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            engine = _open(self.path, kind)
            try:
                with engine.begin() as connection:
                    migrate(connection)
                    yield connection
            finally:
                engine.dispose()
        except (OSError, DBAPIError) as error:
            reason = str(getattr(error, "orig", None) or error)
            fix = "Make room or give write permission there"
            if "not a database" in reason or "malformed" in reason:
                fix = "Move this damaged file away"
            raise StoreError(
                f"The plan store {self.path} cannot be used: {reason}.",
                fix=f"{fix}, or choose another folder with GPUPLAN_HOME.",
            ) from error


def _open(path: Path, kind: TransactionKind) -> sa.Engine:
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        poolclass=sa.NullPool,
        connect_args={"timeout": LOCK_TIMEOUT_S},
    )

    # The driver opens every transaction as a reader, and a reader that goes on to write while
    # another does is refused at once instead of waiting: writers must say so from the start.
    @event.listens_for(engine, "connect")
    def take_over_transactions(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"BEGIN {kind}")

    return engine


def _read_id(connection: sa.Connection) -> str:
    return str(connection.scalar(sa.select(_identity.c.id)))


def _forget(connection: sa.Connection, inputs_hash: str) -> None:
    old = connection.scalar(
        sa.select(_estimates.c.id).where(_estimates.c.inputs_hash == inputs_hash)
    )
    if old is None:
        return
    connection.execute(_listed.delete().where(_listed.c.estimate_id == old))
    connection.execute(_estimates.delete().where(_estimates.c.id == old))
    connection.execute(_plans.delete().where(_plans.c.id.not_in(sa.select(_listed.c.plan_id))))


def _listing(estimate_id: int, plan: Plan) -> dict[str, object]:
    return {
        "estimate_id": estimate_id,
        "position": plan.position,
        "plan_id": plan.id,
        "tie_with_previous": plan.tie_with_previous,
    }


def _read_estimate(connection: sa.Connection, estimate_id: int, facts: str) -> Estimate:
    listed = connection.execute(
        sa.select(_plans.c.content, _listed.c.position, _listed.c.tie_with_previous)
        .join(_plans, _plans.c.id == _listed.c.plan_id)
        .where(_listed.c.estimate_id == estimate_id)
        .order_by(_listed.c.position)
    )
    plans = tuple(_placed(row) for row in listed)
    return Estimate.model_validate_json(facts).model_copy(update={"plans": plans})


def _read_plan(connection: sa.Connection, plan_id: str) -> SourcedPlan:
    row = connection.execute(
        sa.select(
            _plans.c.content,
            _listed.c.position,
            _listed.c.tie_with_previous,
            _estimates.c.facts,
            _estimates.c.origin,
        )
        .join(_listed, _listed.c.plan_id == _plans.c.id)
        .join(_estimates, _estimates.c.id == _listed.c.estimate_id)
        .where(_plans.c.id == plan_id)
        .order_by(_estimates.c.kept_at.desc(), _estimates.c.id.desc())
        .limit(1)
    ).one()
    plan = _placed(row)
    estimate = Estimate.model_validate_json(row.facts).model_copy(update={"plans": (plan,)})
    origin = None if row.origin is None else Origin.model_validate_json(row.origin)
    return SourcedPlan(plan=plan, estimate=estimate, origin=origin)


def _placed(row: sa.Row) -> Plan:
    place = {"position": row.position, "tie_with_previous": row.tie_with_previous}
    return Plan.model_validate_json(row.content).model_copy(update=place)


def _unknown_plan(prefix: str) -> UsageError:
    return UsageError(
        f"No kept plan has an id that begins with {prefix!r}.", fix="See them with `gpuplan plans`."
    )
