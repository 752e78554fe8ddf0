"""A managed job that waits for machines: no guard runs then, while its controller costs.

SkyPilot 0.14 tries again for as long as no place has machines, and no task can tell it to give up.
So every command that looks at such a launch holds it to its limits, one that follows its log too.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ...catalog.units import SECONDS_PER_HOUR
from ..bundle import ORDERS_FILE
from ..guard.orders import Orders, OrdersError
from ..store.accounting import ZERO, attempt_usd
from ..store.launch_record import LaunchRecord
from .context import LaunchContext
from .engine import WITHOUT_MACHINES, EngineError, EngineJob
from .looking import Looking, WaitFor
from .machines import newest_job

LOOK_EVERY_S = 60.0


class Passed(NamedTuple):
    """A limit that a launch passed while it waited for machines."""

    why: str
    """As the guard names it."""
    text: str


def orders_of(record: LaunchRecord) -> Orders | None:
    """Return what holds a launch; None where its folder is gone or damaged."""
    path = Path(record.folder) / "job" / ORDERS_FILE
    try:
        return Orders.from_json(path.read_text(encoding="utf-8"))
    except (OSError, OrdersError):
        return None


def passed(
    record: LaunchRecord, job: EngineJob, orders: Orders | None, *, now: datetime
) -> Passed | None:
    """Return the limit that a launch has passed, if it waits for machines; else None.

    Args:
        record: the launch.
        job: its newest job.
        orders: what holds it; None: nothing does.
        now: by the clock of its newest attempt.
    """
    if orders is None or not record.managed or job.status not in WITHOUT_MACHINES:
        return None
    if orders.deadline_s is not None and now.timestamp() >= orders.deadline_s:
        at = datetime.fromtimestamp(orders.deadline_s, UTC)
        return Passed(
            "deadline",
            f"its deadline ({at:%Y-%m-%d %H:%M} UTC) passed while it waited for machines",
        )
    least_usd = least_spent_usd(record, now=now) + Decimal(str(orders.after_usd))
    if orders.max_cost_usd is not None and least_usd >= Decimal(str(orders.max_cost_usd)):
        return Passed(
            "max-cost",
            f"SkyPilot's controller and earlier machines cost ${least_usd:,.2f} while it waited for"
            f" machines, and --max-cost is ${orders.max_cost_usd:,.2f}",
        )
    return None


def least_spent_usd(record: LaunchRecord, *, now: datetime) -> Decimal:
    """Return what a managed job has surely cost: earlier launches, and the controller since.

    What its machines took since it was asked for is in the guard's folder alone.
    """
    last = record.last
    if last is None:
        return ZERO
    earlier = sum((attempt_usd(record, one, now=now) for one in record.attempts[:-1]), ZERO)
    elapsed_s = max(0.0, (now - last.asked_at).total_seconds())
    hours = Decimal(str(elapsed_s)) / Decimal(SECONDS_PER_HOUR)
    return earlier + (record.controller_usd_per_hour or ZERO) * hours


class Watch:
    """Ends a job that waits beyond its limits, while its log is followed in the main thread."""

    def __init__(
        self,
        context: LaunchContext,
        record: LaunchRecord,
        *,
        wait: WaitFor = threading.Event.wait,
    ) -> None:
        """Prepare it; only a managed job with limits is looked at."""
        self.passed: Passed | None = None
        self._context = context
        self._record = record
        self._orders = orders_of(record) if record.managed else None
        self._looking = Looking(
            self._is_over,
            every_s=LOOK_EVERY_S,
            join_s=LOOK_EVERY_S,
            is_wanted=self._is_limited,
            wait=wait,
        )

    @property
    def _is_limited(self) -> bool:
        orders = self._orders
        return orders is not None and (orders.deadline_s, orders.max_cost_usd) != (None, None)

    def __enter__(self) -> Watch:
        """Begin to look."""
        self._looking.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Look no more."""
        self._looking.__exit__(kind, error, trace)

    def look(self) -> None:
        """Cancel the job if it waits beyond its limits."""
        context, record = self._context, self._record
        job = newest_job(context, record)
        if job is None:
            return
        found = passed(record, job, self._orders, now=context.now_of(record))
        if found is None:
            return
        self.passed = found  # Before the log ends with the job, in the main thread.
        try:
            context.engine.cancel_managed(job.job_id, gracefully=False)
        except EngineError:
            self.passed = None
            raise

    def _is_over(self) -> bool:
        self.look()
        return self.passed is not None
