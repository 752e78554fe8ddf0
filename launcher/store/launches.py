"""The launches of the store. Each change is one transaction that waits for the others.

What is kept is written before money can be spent; nothing here asks the engine anything.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

from ...catalog.errors import UsageError
from ...catalog.text.same_name import is_same_name
from ..uptime import Uptime, uptime
from .estimates import SHORTEST_PREFIX, Store
from .launch_record import Attempt, LaunchRecord
from .launch_rows import (
    all_records,
    damaged_record,
    in_record,
    insert,
    parsed,
    read_record,
    records_for,
    write,
)
from .launch_sums import By, LaunchSum, Wanted, condition_of, launch_sums
from .spending_limits import SpendingLimits, refuse_beyond

MOST_VALUES = 500
"""Of one question; SQLite before 3.32 takes no more than 999."""


class OvertakenError(UsageError):
    """Another command has ended an attempt, or launched the run again, since this one looked."""

    def __init__(self, record: LaunchRecord) -> None:
        what = "was launched again" if record.is_open else f"has ended: {record.outcome}"
        super().__init__(
            f"{record.run} {what}, by another command than this one.",
            fix=f"look at it with `gpuplan status {record.run}`.",
        )


class Ledger:
    """Every launch that was ever meant, in the store's file."""

    def __init__(
        self,
        store: Store,
        *,
        now: Callable[[], datetime],
        uptime: Callable[[], Uptime | None] = uptime,
    ) -> None:
        self._store = store
        self._now = now
        self.uptime = uptime

    def store_id(self) -> str:
        """Return the id of the store, which the machines of its launches carry."""
        return self._store.id()

    def known_store_id(self) -> str | None:
        """Return the id of the store; None where there is none yet."""
        return self._store.known_id()

    def reserve(self, record: LaunchRecord, limits: SpendingLimits) -> None:
        """Keep a launch that is about to be asked for, with its worst case counted.

        Limits are checked and the launch is stored in one transaction, so that of two launches at
        once the second sees the first.

        Raises:
            LimitError: a limit would be passed; nothing is kept.
        """
        with self._store.transaction("IMMEDIATE") as connection:
            refuse_beyond(record, records_for(connection, limits), limits, now=self._now())
            insert(connection, record)
            self._note(connection, record.run, "intended")

    def keep_ended(self, record: LaunchRecord, *, what: str) -> None:
        """Keep a launch that has ended before the store knew it, and note what happened."""
        with self._store.transaction("IMMEDIATE") as connection:
            insert(connection, record)
            self._note(connection, record.run, what)

    def begin_attempt(
        self,
        run: str,
        limits: SpendingLimits,
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
            record = change(read_record(connection, run))
            last = record.last
            if last is not None and last.outcome is None:
                raise UsageError(
                    f"{run} is launched already: attempt {last.number} is still open.",
                    fix=f"look at it with `gpuplan status {run}`.",
                )
            refuse_beyond(record, records_for(connection, limits), limits, now=self._now())
            number = len(record.attempts) + 1
            attempt = Attempt(
                number=number, spot=spot, asked_at=self._now(), asked_uptime=self.uptime()
            )
            record = record.model_copy(
                update={
                    "state": "intended",
                    "outcome": None,
                    "why": None,
                    "attempts": (*record.attempts, attempt),
                }
            )
            write(connection, record)
            self._note(connection, run, f"attempt {number} intended")
        return record

    def update(
        self,
        run: str,
        change: Callable[[LaunchRecord], LaunchRecord | None],
        *,
        what: str,
        attempt: int | None = None,
        open_only: bool = False,
    ) -> LaunchRecord:
        """Change a launch as it stands now, and note what happened.

        Args:
            run: its id.
            change: returns it changed; None where there is nothing to change or to note.
            what: happened.
            attempt: number of the attempt that is meant; None: the newest.
            open_only: whether that attempt must not have ended.

        Raises:
            OvertakenError: another attempt is the newest, or that one has ended; nothing changes.
        """
        with self._store.transaction("IMMEDIATE") as connection:
            record = read_record(connection, run)
            last = record.last
            is_newest = attempt is None or (last is not None and last.number == attempt)
            has_ended = last is not None and last.outcome is not None
            if not is_newest or (open_only and has_ended):
                raise OvertakenError(record)
            changed = change(record)
            if changed is None:
                return record
            write(connection, changed)
            self._note(connection, run, what)
        return changed

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
        damaged = next((run for run in self.unreadable() if run.startswith(wanted)), None)
        if not found and damaged is not None:
            raise damaged_record(damaged)
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
            return read_record(connection, run)

    def all(self) -> list[LaunchRecord]:
        """Return every launch that can be read, newest first; `unreadable` names the others."""
        return [record for _, record in self._rows() if record is not None]

    def counted(self, limits: SpendingLimits) -> list[LaunchRecord]:
        """Return every launch that limits count, newest first.

        Raises:
            StoreError: one cannot be read, and a limit may refuse a launch for what it costs.
        """
        if not self._store.exists():
            return []
        with self._store.transaction() as connection:
            return records_for(connection, limits)

    def unreadable(self) -> list[str]:
        """Return the runs whose records are damaged, or of a version that this one cannot read."""
        return [run for run, record in self._rows() if record is None]

    def _rows(self) -> list[tuple[str, LaunchRecord | None]]:
        if not self._store.exists():
            return []
        with self._store.transaction() as connection:
            return all_records(connection)

    def open(self) -> list[LaunchRecord]:
        """Return the launches that may still cost money, newest first."""
        return self._where("state <> 'ended'", ())

    def of_plans(self, plans: Iterable[str]) -> list[LaunchRecord]:
        """Return the launches of plans, by their ids, newest first."""
        wanted = sorted(set(plans))
        return [
            record
            for i in range(0, len(wanted), MOST_VALUES)
            for record in self._where(
                f"plan IN ({', '.join('?' * len(wanted[i : i + MOST_VALUES]))})",
                wanted[i : i + MOST_VALUES],
            )
        ]

    def of_workloads(self, workloads: Iterable[str]) -> list[LaunchRecord]:
        """Return the launches of workloads (`workload_key`), newest first."""
        return [
            record
            for workload in sorted(set(workloads))
            for record in self._where(f"{in_record('workload')} = ?", (workload,))
        ]

    def of_project(self, name: str, file: str | None = None) -> list[LaunchRecord]:
        """Return the launches of a project, newest first.

        Args:
            name: of the project; names are compared as the labels of machines are.
            file: its file, absolute: launches that were made for it are its own by any name.
        """
        if not self._store.exists():
            return []
        with self._store.transaction() as connection:
            known = connection.execute("SELECT DISTINCT project FROM launches").fetchall()
        names = [row["project"] for row in known if is_same_name(row["project"] or "", name)]
        listed = ", ".join("?" * len(names))
        return self._where(
            f"project IN ({listed}) OR {in_record('project_file')} = ?",
            (*names, file or ""),
        )

    def sums(self, wanted: Wanted, by: By) -> list[LaunchSum]:
        """Return launches summed up by a name of theirs, as of now."""
        return launch_sums(self._store, wanted, by, now=self._now())

    def newest(self, wanted: Wanted, limit: int | None = None) -> list[LaunchRecord]:
        """Return the wanted launches that can be read, newest first, at most `limit` of them."""
        condition, values = condition_of(wanted)
        return self._where(condition, values, limit)

    def not_in_sums(self) -> list[str]:
        """Return the runs that `sums` leaves out, as their records cannot be read."""
        if not self._store.exists():
            return []
        with self._store.transaction() as connection:
            rows = connection.execute(
                "SELECT run, record FROM launches WHERE ended_microusd IS NULL"
            ).fetchall()
        return [row["run"] for row in rows if parsed(row["record"]) is None]

    def _where(
        self, condition: str, values: Sequence[str], limit: int | None = None
    ) -> list[LaunchRecord]:
        if not self._store.exists():
            return []
        with self._store.transaction() as connection:
            rows = connection.execute(
                f"SELECT record FROM launches WHERE {condition} ORDER BY created_at DESC LIMIT ?",
                (*values, -1 if limit is None else limit),
            ).fetchall()
        return [record for row in rows if (record := parsed(row["record"])) is not None]

    def events(self, run: str) -> list[tuple[datetime, str]]:
        """Return what happened to a launch, oldest first."""
        if not self._store.exists():
            return []
        with self._store.transaction() as connection:
            rows = connection.execute(
                "SELECT at, what FROM launch_events WHERE run = ? ORDER BY id", (run,)
            ).fetchall()
        return [(datetime.fromisoformat(row["at"]), row["what"]) for row in rows]

    def _note(self, connection: sqlite3.Connection, run: str, what: str) -> None:
        connection.execute(
            "INSERT INTO launch_events (run, at, what) VALUES (?, ?, ?)",
            (run, self._now().isoformat(), what),
        )


def default_ledger(now: Callable[[], datetime], path: Path | None = None) -> Ledger:
    """Return the ledger of this machine's user."""
    return Ledger(Store(path), now=now)
