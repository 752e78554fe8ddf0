"""The guard's orders in a job folder, brought up to date each time that machines are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ..catalog.errors import UsageError
from ..catalog.files import write_atomically
from .account import attempt_usd
from .guard.orders import Orders, OrdersError
from .launch_record import LaunchRecord

GUARD_FILE = "guard.json"
SECONDS_PER_HOUR = 3600


def orders_path(record: LaunchRecord) -> Path:
    """Return where a launch keeps the orders that are sent to its machines."""
    return Path(record.folder) / "job" / GUARD_FILE


def renew_orders(
    record: LaunchRecord, now: datetime, *, changes: Mapping[str, Any] | None = None
) -> None:
    """Write the orders of the newest attempt: its time, and what the earlier ones took.

    Args:
        record: the launch.
        now: when machines are asked for.
        changes: fields of `Orders` that a person changes; `action` is the projection's.

    Raises:
        UsageError: the folder of the launch is gone or damaged.
    """
    path = orders_path(record)
    try:
        orders = Orders.from_json(path.read_text(encoding="utf-8"))
    except (OSError, OrdersError) as error:
        raise UsageError(
            f"{path} cannot be used ({error}), and it says what stops the run.",
            fix="launch the plan again.",
        ) from None
    fields = dict(changes or {})
    action = fields.pop("action", None)
    if action is not None and orders.projection is not None:
        fields["projection"] = replace(orders.projection, action=action)
    earlier = record.attempts[:-1]
    orders = replace(
        orders,
        requested_at_s=now.timestamp(),
        spent_before_usd=float(sum(attempt_usd(record, one, now=now) for one in earlier)),
        hours_before=_hours(record),
        **fields,
    )
    write_atomically(path, orders.to_json())


def _hours(record: LaunchRecord) -> float:
    """Return for how long the machines of earlier attempts ran."""
    spans = [
        (one.ended_at - one.began_at).total_seconds()
        for one in record.attempts[:-1]
        if one.began_at is not None and one.ended_at is not None
    ]
    return sum(spans) / SECONDS_PER_HOUR
