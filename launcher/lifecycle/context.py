"""What the steps of a launch need of the world: the store, the engine, clocks and output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TextIO

from ..store.launch_record import LaunchRecord
from ..store.launches import Ledger
from .engine import Engine

WriteOrders = Callable[[LaunchRecord, datetime, Decimal | None], None]
"""Write the guard's orders into the job folder, with what was spent before, the time now, and the
most that all attempts may cost, where a limit counts the launch at that."""

KeepRun = Callable[[LaunchRecord, Mapping[str, Any]], None]


CORRECTED_S = 60.0
"""Clocks are corrected by less all the time."""


@dataclass(frozen=True, kw_only=True)
class LaunchContext:
    """What a step needs: the store, the engine, clocks and output."""

    ledger: Ledger
    engine: Engine
    now: Callable[[], datetime]
    """UTC."""
    tell: Callable[[str], None]
    """Called with messages for the user."""
    write_orders: WriteOrders
    keep_run: KeepRun = lambda _record, _run: None
    """Called with the run record of a job that has left one."""
    while_starting: Callable[[LaunchRecord], AbstractContextManager[object]] = lambda _record: (
        nullcontext()
    )
    """Held while a launch waits for its machines, and left once they are there."""
    listed: Callable[[LaunchRecord], tuple[str, ...] | None] = lambda _record: None
    """Returns the machines with a launch's label that its clouds list where it may be; None where
    they cannot be asked, or not all."""
    log: TextIO | None = None
    """Where the engine's own log and the job's go; None: nowhere."""

    def now_of(self, record: LaunchRecord) -> datetime:
        """Return the time now, on the clock by which the newest attempt was asked for.

        Where this machine was not restarted since, a clock that was set back loses no hour of it.
        """
        now, last, up = self.now(), record.last, self.ledger.uptime()
        asked = None if last is None else last.asked_uptime
        if last is None or asked is None or up is None or asked.boot != up.boot:
            return now
        counted = last.asked_at + timedelta(seconds=up.s - asked.s)
        return counted if (counted - now).total_seconds() > CORRECTED_S else now
