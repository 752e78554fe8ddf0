"""Which launches may be launched again."""

from __future__ import annotations

from ...catalog.errors import PriceError, UsageError
from ..store.launch_record import LaunchRecord
from .observing.observe import Finding


def refuse_to_resume(record: LaunchRecord, finding: Finding, *, change_orders: bool) -> None:
    """Refuse to launch a run again that is open, is done, or was ended by unchanged orders.

    Args:
        record: the launch.
        finding: what became of its machines.
        change_orders: whether the guard's orders were changed.

    Raises:
        UsageError: it is one of these, or its job may still run.
    """
    if finding == "unreachable" and not record.is_open:
        raise UsageError(
            f"{record.run} has ended in the store, and its job may still run.",
            fix=f"end its machines first, with `gpuplan down {record.run}`.",
        )
    if record.is_open:
        raise UsageError(
            f"{record.run} still runs.", fix=f"follow it with `gpuplan logs -f {record.run}`."
        )
    if record.is_unknown:
        raise UsageError(
            f"What became of the machines of {record.run} is not known: they may still train, and"
            f" write to {record.results}.",
            fix="launch its plan again, with results of its own.",
        )
    if record.outcome == "succeeded":
        raise UsageError(
            f"{record.run} has trained all its steps.", fix="launch a plan with more --steps."
        )
    if record.outcome == "guarded" and not change_orders:
        raise UsageError(
            f"{record.run} was ended by its guard: {record.why}.",
            fix="allow more with --max-cost, --max-hours, --deadline or --on-projection continue.",
        )


def refuse_spot_prices(record: LaunchRecord, *, spot: bool) -> None:
    """Refuse to count machines that are bought on demand at the price of spot machines.

    Raises:
        PriceError: the launch has no other price.
    """
    if not spot and any(one.spot for one in record.places):
        raise PriceError(
            f"What the machines of {record.run} cost on demand is not known.",
            fix="launch its plan again with --on-demand, or go on with --spot.",
        )
