"""Launches that a fault hits at one recorded step, and what must be true once they are picked up.

A step is a call to the engine, or a transaction of the store: before it and after it. Commands that
are killed, or meet a full disk or a folder that may not be written, run in a process of their own;
the cloud goes on without it.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from unittest import mock

from fake_engine import Clock, FakeEngine
from launch_fault_cases import HOUR_S, Case, Fault
from launch_records import RUN, make_context, make_record

from gpuplan.catalog.errors import GpuplanError
from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import LostTouchError
from gpuplan.launcher.lifecycle.following import follow
from gpuplan.launcher.lifecycle.reconcile.reconcile import reconcile, take_down
from gpuplan.launcher.lifecycle.resume import down, look_at_open, resume, stop
from gpuplan.launcher.lifecycle.transitions import ask, attend, begin, wait_started
from gpuplan.launcher.store import estimates
from gpuplan.launcher.store.accounting import spent_usd
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.launch_record import PricedPlace
from gpuplan.launcher.store.launches import Ledger
from gpuplan.launcher.store.spending_limits import SpendingLimits
from gpuplan.launcher.uptime import Uptime

OWN_PROCESS: tuple[Fault, ...] = ("kill -9", "full disk", "read-only folder")
AT_A_CALL: tuple[Fault, ...] = ("hang, then Ctrl-C", "call lost", "answer lost", "server away")
OTHER = "old-20261101-100000-0000ff"
NOBODY = 65534
CENT = Decimal("0.01")
LOCK_S = 0.02
"""How long a store waits for a lock that is stale, in these tests."""


class TickingStore(Store):
    """A store that says when a transaction begins and when it is on the disk."""

    def __init__(self, path: Path, at: Callable[[str], None]) -> None:
        super().__init__(path)
        self._at = at

    @contextmanager
    def transaction(
        self, kind: estimates.TransactionKind = "DEFERRED"
    ) -> Iterator[sqlite3.Connection]:
        self._at("store")
        with super().transaction(kind) as connection:
            yield connection
        self._at("store done")


class World:
    """A cloud with its engine, and a command that a fault hits."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.case = case
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "home").mkdir()
        self.path = folder / "home" / "store.sqlite3"
        self.offset = timedelta()
        self.problems: list[str] = []
        self._steps = 0
        self._due: int | None = None
        self._undo: list[Callable[[], object]] = []
        self.use(FakeEngine(Clock()))

    def use(self, engine: FakeEngine) -> None:
        """Take this engine, as it is now."""
        self.engine = engine
        engine.cut = self._at
        store = TickingStore(self.path, self._at)
        ledger = Ledger(store, now=self.now, uptime=self.uptime)
        self.context: LaunchContext = make_context(self.folder, engine, ledger=ledger, now=self.now)

    def now(self) -> datetime:
        """Return the time of this machine, whose clock may have been set."""
        return self.engine.clock() + self.offset

    def uptime(self) -> Uptime:
        """Return how long this machine is up, which no setting of its clock changes."""
        return Uptime(boot="this", s=self.engine.clock().timestamp())

    def count(self) -> int:
        """Return how many steps the command takes that no fault hits."""
        self.prepare()
        self._steps = 0
        self.act()
        return self._steps

    def play(self, steps: int) -> list[str]:
        """Hit the command at its step, pick up what is left; return what is wrong then."""
        self.prepare()
        self._steps, self._due = 0, min(int(self.case.at * steps), steps - 1)
        if self.case.fault in OWN_PROCESS:
            self._in_own_process()
        else:
            self._guarded("the command", self.act)
        self._due = None
        for undo in self._undo:
            undo()
        self._undo.clear()
        self.engine.clock.pass_s(self.case.away_s)
        if self.case.server_goes_on:
            self._guarded("the server", self.engine.finish_requests)
        for _ in range(3):
            self._guarded("reconcile", self._pick_up)
        self._check()
        return self.problems

    # --- the commands ---

    def prepare(self) -> None:
        """Bring about what the command is given for, undisturbed."""
        self.record = make_record(
            self.folder,
            Clock(self.now()),
            managed=self.case.managed,
            nodes=self.case.nodes,
            places=(
                PricedPlace(infra="gcp/us-central1", usd_per_hour=Decimal(36) / self.case.nodes),
            ),
        )
        other = make_record(self.folder, Clock(self.now()), run=OTHER)
        down(self.context, begin(self.context, other, SpendingLimits(), spot=False))
        if self.case.command == "launch":
            return
        limits = SpendingLimits()
        begun = begin(self.context, self.record, limits, spot=self.case.managed)
        running = wait_started(self.context, ask(self.context, begun))
        if self.case.command == "resume":
            self._lose_machines()
            look_at_open(self.context)
        if self.case.command == "reconcile":
            self.engine.clock.pass_s(600)
            self.engine.end_job(running.cluster)

    def act(self) -> None:
        """Do what the command does."""
        context, record = self.context, self.record
        if self.case.command == "launch":
            begun = begin(context, record, SpendingLimits(), spot=record.managed)
            attend(context, wait_started(context, ask(context, begun)))
        elif self.case.command == "resume":
            attend(context, resume(context, context.ledger.get(RUN), SpendingLimits()))
        elif self.case.command == "stop":
            stop(context, context.ledger.get(RUN), wait=self.engine.clock.pass_s)
        elif self.case.command == "down":
            down(context, context.ledger.get(RUN))
        elif self.case.command == "reconcile":
            reconcile(context, owner="ann")
        else:
            follow(context, context.ledger.get(RUN), wait=self.engine.clock.pass_s)

    def _lose_machines(self) -> None:
        for name in self.engine.live():
            self.engine.take_machines(name)
            self.engine.end_job(name, "failed")

    # --- the faults ---

    def _at(self, what: str) -> None:
        if self._due is None:
            self._steps += 1
            return
        is_call = not what.startswith("store")
        wanted = is_call if self.case.fault in AT_A_CALL else True
        if self.case.fault == "answer lost":
            wanted = is_call and what.endswith(" done")
        if self._steps >= self._due and wanted:
            self._due = None
            self._hit()
        self._steps += 1

    def _hit(self) -> None:
        fault, engine = self.case.fault, self.engine
        if fault == "kill -9":
            self._dump()
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "Ctrl-C":
            raise KeyboardInterrupt
        elif fault == "hang, then Ctrl-C":
            engine.clock.pass_s(HOUR_S)
            raise KeyboardInterrupt
        elif fault in ("call lost", "answer lost"):
            raise LostTouchError("the connection was lost")
        elif fault == "server away":
            self._take_server_away()
        elif "capacity" in fault:
            engine.no_capacity = True
            engine.partial_s = 600.0 if fault == "nodes without capacity" else 0.0
        elif fault == "start fails":
            engine.breaks_while_starting = engine.tears_down_failed = True
        elif fault == "machines taken":
            self._lose_machines()
        elif fault.startswith("clock"):
            self.offset += timedelta(hours=5 if fault.endswith("forward") else -5)
        elif fault.endswith("beside it"):
            self._beside()
        else:
            self._hit_store()

    def _take_server_away(self) -> None:
        def away(what: str) -> None:
            if not what.startswith("store"):
                raise LostTouchError("the connection was lost")

        self.engine.cut = away
        self._undo.append(lambda: setattr(self.engine, "cut", self._at))
        raise LostTouchError("the connection was lost")

    def _beside(self) -> None:
        """Run another command here, to its end."""
        context = self.context
        other: Callable[[], object] = lambda: reconcile(context, owner="ann")  # noqa: E731
        if self.case.fault == "down beside it":
            other = lambda: down(context, context.ledger.find(RUN))  # noqa: E731
        elif self.case.fault == "resume beside it":
            other = lambda: resume(  # noqa: E731
                context, context.ledger.find(RUN), SpendingLimits()
            )
        self._guarded("the other command", other)

    def _hit_store(self) -> None:
        fault = self.case.fault
        if fault == "full disk":
            # No file grows beyond what the store holds now; what says so is an error, no signal.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            size = self.path.stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        elif fault == "read-only folder":
            for path in (self.path, self.path.parent, self.folder / RUN):
                path.chmod(0o444 if path.is_file() else 0o555)
            if os.geteuid() == 0:
                os.seteuid(NOBODY)
        elif fault.endswith("row torn"):
            run = RUN if fault == "own row torn" else OTHER
            with sqlite3.connect(self.path) as store:
                torn = "UPDATE launches SET record = substr(record, 1, 99) WHERE run = ?"
                store.execute(torn, (run,))
            store.close()
        else:
            other = sqlite3.connect(self.path, isolation_level=None, timeout=0)
            with suppress(sqlite3.OperationalError):  # This command may hold it itself.
                other.execute("BEGIN EXCLUSIVE")
            self._undo.append(other.close)

    def _in_own_process(self) -> None:
        """Run the command in another process, and take over what its cloud has become."""
        kept = self.folder / "engine"
        pid = os.fork()
        if pid == 0:
            said = ""
            try:
                self._guarded("the command", self.act)
                said = "\n".join(self.problems)
            finally:
                with suppress(Exception):
                    resource.setrlimit(
                        resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                    )
                    if os.getuid() == 0:
                        os.seteuid(0)
                    (self.folder / "said").write_text(said)
                    self._dump()
                os._exit(0)
        os.waitpid(pid, 0)
        self.use(pickle.loads(kept.read_bytes()))
        for path in (self.folder / RUN, self.path.parent, self.path):
            if path.exists():
                path.chmod(0o644 if path.is_file() else 0o755)
        said = self.folder / "said"
        if said.exists() and said.read_text():
            self.problems.append(said.read_text())

    def _dump(self) -> None:
        cut, self.engine.cut = self.engine.cut, _nothing
        (self.folder / "engine").write_bytes(pickle.dumps(self.engine))
        self.engine.cut = cut

    def _guarded(self, who: str, act: Callable[[], object]) -> None:
        """Do something; what the user would see as a traceback is a problem."""
        try:
            act()
        except (GpuplanError, KeyboardInterrupt):
            return
        except Exception:
            self.problems.append(f"traceback of {who}: {traceback.format_exc()}")

    # --- what is left ---

    def _pick_up(self) -> None:
        for found in reconcile(self.context, owner="ann"):
            if found.is_orphan or found.kind == "unattributed":
                take_down(self.context, found, terminate=lambda _machines: None, confirmed=True)
        for record in self.context.ledger.open():
            follow(self.context, record, wait=self.engine.clock.pass_s)

    def _check(self) -> None:
        problems, ledger = self.problems, self.context.ledger
        if self.engine.live():
            problems.append(f"orphans: {self.engine.live()}")
        problems += [f"{one.run} is still open" for one in ledger.open()]
        spans = [one for one in self.engine.books if one.name == self.record.cluster]
        allowed = 2 if "resume" in (self.case.command, self.case.fault.partition(" ")[0]) else 1
        if len(spans) > allowed:
            problems.append(f"launched {len(spans)} times")
        spent = sum((spent_usd(one, now=self.now()) for one in ledger.all()), Decimal(0))
        missing = self.engine.billed_usd() - spent - CENT * len(spans)
        if missing > 0 and self.record.run not in ledger.unreadable():
            problems.append(f"${missing:.2f} of ${self.engine.billed_usd():.2f} unaccounted")


def _nothing(_call: str) -> None:
    """Do nothing at a step."""


def play(case: Case, folder: Path) -> list[str]:
    """Return what is wrong after one case; nothing, where all is well."""
    with mock.patch.object(estimates, "LOCK_TIMEOUT_S", LOCK_S):
        steps = World(folder / "counted", case).count()
        return World(folder / "played", case).play(steps)
