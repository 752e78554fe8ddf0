"""The launches of the store. Each change is one transaction that waits for the others.

What is kept is written before money can be spent; nothing here asks the engine anything.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from ..catalog.errors import UsageError
from .account import Limits, refuse_beyond
from .launch_record import Attempt, LaunchRecord
from .store import SHORTEST_PREFIX, Store

_tables = sa.MetaData()
_launches = sa.Table(
    "launches",
    _tables,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("created_at", sa.Text),
    sa.Column("state", sa.Text),
    sa.Column("cluster", sa.Text),
    sa.Column("record", sa.Text),
)
_events = sa.Table(
    "launch_events",
    _tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("run", sa.Text),
    sa.Column("at", sa.Text),
    sa.Column("what", sa.Text),
)


class Ledger:
    """Every launch that was ever meant, in the store's file."""

    def __init__(self, store: Store, *, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now

    def store_id(self) -> str:
        """Return the id of the store, which the machines of its launches carry."""
        return self._store.id()

    def known_store_id(self) -> str | None:
        """Return the id of the store; None where there is none yet."""
        return self._store.known_id()

    def reserve(self, record: LaunchRecord, limits: Limits) -> None:
        """Keep a launch that is about to be asked for, with its worst case counted.

        Limits are looked at and the launch is kept in one transaction, so that of two launches at
        once the second sees the first.

        Raises:
            LimitError: a limit would be passed; nothing is kept.
        """
        with self._store.transaction("IMMEDIATE") as connection:
            rows = connection.scalars(sa.select(_launches.c.record)).all()
            others = [LaunchRecord.model_validate_json(row) for row in rows]
            refuse_beyond(record, others, limits, now=self._now())
            connection.execute(_launches.insert(), _row(record))
            self._note(connection, record.run, "intended")

    def begin_attempt(
        self,
        run: str,
        limits: Limits,
        *,
        spot: bool,
        change: Callable[[LaunchRecord], LaunchRecord] = lambda record: record,
    ) -> LaunchRecord:
        """Keep that machines are about to be asked for (again), before they are.

        Raises:
            UsageError: an attempt is open already, so that two would run at once.
            LimitError: a limit would be passed.
        """
        with self._store.transaction("IMMEDIATE") as connection:
            record = change(_read(connection, run))
            last = record.last
            if last is not None and last.outcome is None:
                raise UsageError(
                    f"{run} is launched already: attempt {last.number} is still open.",
                    fix=f"look at it with `gpuplan status {run}`.",
                )
            rows = connection.scalars(sa.select(_launches.c.record)).all()
            others = [LaunchRecord.model_validate_json(row) for row in rows]
            refuse_beyond(record, others, limits, now=self._now())
            number = len(record.attempts) + 1
            attempt = Attempt(number=number, spot=spot, asked_at=self._now())
            record = record.model_copy(
                update={
                    "state": "intended",
                    "outcome": None,
                    "why": None,
                    "attempts": (*record.attempts, attempt),
                }
            )
            _write(connection, record)
            self._note(connection, run, f"attempt {number} intended")
        return record

    def update(
        self, run: str, change: Callable[[LaunchRecord], LaunchRecord], *, what: str
    ) -> LaunchRecord:
        """Change a launch as it stands now, and note what happened."""
        with self._store.transaction("IMMEDIATE") as connection:
            record = change(_read(connection, run))
            _write(connection, record)
            self._note(connection, run, what)
        return record

    def find(self, prefix: str) -> LaunchRecord:
        """Return the one launch whose run id begins with `prefix`, or whose cluster is that.

        Raises:
            UsageError: there is none, or several.
        """
        wanted = prefix.strip()
        if len(wanted) < SHORTEST_PREFIX:
            raise UsageError(
                f"{prefix!r} is too short for a run id.", fix="Give two characters or more."
            )
        found = [one for one in self.all() if one.run == wanted or one.cluster == wanted] or [
            one for one in self.all() if one.run.startswith(wanted)
        ]
        if not found:
            raise UsageError(
                f"No launch has a run id that begins with {prefix!r}.",
                fix="See them with `gpuplan history`.",
            )
        if len(found) > 1:
            listed = ", ".join(one.run for one in found[:5])
            raise UsageError(
                f"Several launches begin with {prefix!r}: {listed}{' …' if found[5:] else ''}.",
                fix="Give more of the run id.",
            )
        return found[0]

    def get(self, run: str) -> LaunchRecord:
        """Return a launch as it stands now."""
        with self._store.transaction() as connection:
            return _read(connection, run)

    def all(self) -> list[LaunchRecord]:
        """Return every launch, newest first."""
        if not self._store.path.exists():
            return []
        newest = sa.select(_launches.c.record).order_by(_launches.c.created_at.desc())
        with self._store.transaction() as connection:
            rows = connection.scalars(newest).all()
        return [LaunchRecord.model_validate_json(row) for row in rows]

    def open(self) -> list[LaunchRecord]:
        """Return the launches that may still cost money, newest first."""
        return [record for record in self.all() if record.is_open]

    def events(self, run: str) -> list[tuple[datetime, str]]:
        """Return what happened to a launch, oldest first."""
        if not self._store.path.exists():
            return []
        rows_of = sa.select(_events.c.at, _events.c.what).where(_events.c.run == run)
        with self._store.transaction() as connection:
            rows = connection.execute(rows_of.order_by(_events.c.id)).all()
        return [(datetime.fromisoformat(row.at), row.what) for row in rows]

    def _note(self, connection: sa.Connection, run: str, what: str) -> None:
        row = {"run": run, "at": self._now().isoformat(), "what": what}
        connection.execute(_events.insert(), row)


def default_ledger(now: Callable[[], datetime], path: Path | None = None) -> Ledger:
    """Return the ledger of this machine's user."""
    return Ledger(Store(path), now=now)


def _row(record: LaunchRecord) -> dict[str, str]:
    return {
        "run": record.run,
        "created_at": record.created_at.isoformat(),
        "state": record.state,
        "cluster": record.cluster,
        "record": record.model_dump_json(),
    }


def _read(connection: sa.Connection, run: str) -> LaunchRecord:
    row = connection.scalar(sa.select(_launches.c.record).where(_launches.c.run == run))
    if row is None:
        raise UsageError(f"There is no launch {run}.", fix="See them with `gpuplan history`.")
    return LaunchRecord.model_validate_json(row)


def _write(connection: sa.Connection, record: LaunchRecord) -> None:
    connection.execute(_launches.update().where(_launches.c.run == record.run), _row(record))
