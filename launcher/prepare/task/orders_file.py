"""The guard's orders in a job folder, brought up to date each time that machines are asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ....catalog.errors import UsageError
from ....catalog.units import SECONDS_PER_HOUR
from ....planner.cost.launch_cost import CONTROLLER_IDLE_HOURS
from ...bundle import ORDERS_FILE, write_guard, write_orders
from ...guard.orders import Orders, OrdersError
from ...store.accounting import ZERO, idle_usd, node_hours, spent_usd
from ...store.launch_record import LaunchRecord
from .guard_config import at_rates, refuse_no_room, refuse_too_late


def orders_path(record: LaunchRecord) -> Path:
    """Return where a launch keeps the orders that are sent to its machines."""
    return Path(record.folder) / "job" / ORDERS_FILE


def read_orders(record: LaunchRecord) -> Orders:
    """Return the orders that are sent to the machines of a launch.

    Raises:
        UsageError: the folder of the launch is gone or damaged.
    """
    path = orders_path(record)
    try:
        return Orders.from_json(path.read_text(encoding="utf-8"))
    except (OSError, OrdersError) as error:
        raise UsageError(
            f"{path} cannot be used ({error}), and it says what stops the run.",
            fix="launch the plan again.",
        ) from None


def renew_orders(
    record: LaunchRecord,
    now: datetime,
    *,
    changes: Mapping[str, Any] | None = None,
    at_most_usd: Decimal | None = None,
) -> None:
    """Write the orders of the newest attempt: its time, its prices, what the earlier ones took.

    The guard that reads them is written beside them.

    Args:
        record: the launch.
        now: when machines are asked for.
        changes: fields of `Orders` that the user changes; `action` is the projection's.
        at_most_usd: of all attempts together, where a limit counts the launch at that.

    Raises:
        UsageError: the folder of the launch is gone or damaged.
        LimitError: the limits leave nothing to train with.
    """
    path, orders = orders_path(record), _at_prices(read_orders(record), record)
    fields = dict(changes or {})
    action = fields.pop("action", None)
    if action is not None and orders.projection is not None:
        fields["projection"] = replace(orders.projection, action=action)
    earlier = record.model_copy(update={"attempts": record.attempts[:-1]})
    orders = replace(
        orders,
        requested_at_s=now.timestamp(),
        minimum_s=record.minimum_s or 0.0,
        increment_s=record.billing_increment_s or 0.0,
        spent_before_usd=float(spent_usd(earlier, now=now)),
        hours_before=node_hours(earlier, now=now) / record.nodes,
        **fields,
    )
    if at_most_usd is not None and not (orders.max_cost_usd or math.inf) <= at_most_usd:
        orders = replace(orders, max_cost_usd=float(at_most_usd))
    refuse_no_room(orders, known_start_s=_known_start_s(earlier, now))
    refuse_too_late(orders)
    # An older version may have put a guard there that does not know all of these orders.
    write_guard(path.parent)
    write_orders(path.parent, orders)


def _at_prices(orders: Orders, record: LaunchRecord) -> Orders:
    """Return orders at the prices of the places of a launch, as it is bought now."""
    if not record.places:
        return orders
    # SkyPilot's controller goes with a managed job, wherever its machines are.
    usd = (record.controller_usd_per_hour if record.managed else None) or ZERO
    beside = float(usd)

    def rates(*, spot: bool) -> dict[str, float]:
        return {
            one.infra: float(one.usd_per_hour) * record.nodes + beside
            for one in record.places
            if one.spot == spot
        }

    return replace(
        at_rates(orders, rates(spot=True), rates(spot=False)),
        after_usd=beside * float(CONTROLLER_IDLE_HOURS),
        waiting_usd_per_hour=beside,
    )


def _known_start_s(earlier: LaunchRecord, now: datetime) -> float | None:
    """Return what the newest of the attempts took beside its command, its end included.

    None where that is not known.
    """
    last = earlier.last
    if last is None or not last.usd_per_hour:
        return None
    usd = idle_usd(earlier, last, now=now)
    return None if usd is None else float(usd / last.usd_per_hour) * SECONDS_PER_HOUR
