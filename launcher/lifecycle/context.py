"""What the steps of a launch need of the world: the store, the engine, clocks and output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, TextIO

from ..store.launch_record import LaunchRecord
from ..store.launches import Ledger
from .engine import Engine

WriteOrders = Callable[[LaunchRecord, datetime, Decimal | None], None]
"""Write the guard's orders into the job folder, with what was spent before, the time now, and the
most that all attempts may cost, where a limit counts the launch at that."""

KeepRun = Callable[[LaunchRecord, Mapping[str, Any]], None]


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
    log: TextIO | None = None
    """Where the engine's own log and the job's go; None: nowhere."""
