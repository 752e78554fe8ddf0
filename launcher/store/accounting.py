"""What launches cost: pure sums over what is kept of them. Dollars are exact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from ...catalog.units import SECONDS_PER_HOUR
from ...planner.cost.billing import billed_seconds
from ...planner.cost.run_cost import CENT
from .launch_record import Attempt, LaunchRecord

ZERO = Decimal(0)


def attempt_usd(record: LaunchRecord, attempt: Attempt, *, now: datetime) -> Decimal:
    """Return what an attempt has cost so far: 0 where nothing was rented.

    hours paid for (rounded up as the provider does) x the price of all nodes.
    """
    if attempt.counted_usd is not None:
        return attempt.counted_usd
    if attempt.began_at is None or attempt.usd_per_hour is None:
        return ZERO
    seconds = max(0.0, ((attempt.ended_at or now) - attempt.began_at).total_seconds())
    billed_s = billed_seconds(
        seconds, increment_s=record.billing_increment_s, minimum_s=record.minimum_s
    )
    hours = Decimal(str(billed_s)) / Decimal(SECONDS_PER_HOUR)
    return (hours * attempt.usd_per_hour).quantize(CENT)


def idle_usd(record: LaunchRecord, attempt: Attempt, *, now: datetime) -> Decimal | None:
    """Return what an attempt cost while its command did not run; None where that is not known.

    From when its machines were paid for until the command began, from its end until they were gone,
    and what the provider rounds up.
    """
    whole = attempt_usd(record, attempt, now=now)
    if attempt.command_usd is None:
        return None if whole else ZERO
    return max(ZERO, whole - attempt.command_usd)


def spent_usd(record: LaunchRecord, *, now: datetime) -> Decimal:
    """Return what a launch has cost so far, all attempts."""
    return sum((attempt_usd(record, one, now=now) for one in record.attempts), ZERO)


def spent_in_usd(record: LaunchRecord, month: str, *, now: datetime) -> Decimal:
    """Return what a launch has cost in a month (`2026-11`, UTC), all attempts.

    An attempt that reaches into another month costs in each as long as it was in it.
    """
    parts = (
        attempt_usd(record, one, now=now) * _share_in(one, month, now=now)
        for one in record.attempts
    )
    return sum((part.quantize(CENT) for part in parts), ZERO)


def _share_in(attempt: Attempt, month: str, *, now: datetime) -> Decimal:
    """Return the fraction of an attempt's time that is in a month."""
    began_at = attempt.began_at or attempt.asked_at
    ended_at = attempt.ended_at or (now if attempt.began_at is not None else began_at)
    first = datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC)
    after = (first + timedelta(days=31)).replace(day=1)
    whole_s = (ended_at - began_at).total_seconds()
    if whole_s <= 0:
        return Decimal(int(first <= began_at < after))
    inside_s = (min(ended_at, after) - max(began_at, first)).total_seconds()
    return Decimal(str(max(0.0, inside_s) / whole_s))


def node_hours(record: LaunchRecord, *, now: datetime) -> float:
    """Return for how many node-hours machines ran, all attempts."""
    spans_s = (
        max(0.0, ((one.ended_at or now) - one.began_at).total_seconds())
        for one in record.attempts
        if one.began_at is not None
    )
    return record.nodes * sum(spans_s) / SECONDS_PER_HOUR


def committed_usd(record: LaunchRecord, *, now: datetime) -> Decimal:
    """Return what a launch counts for in a limit: its worst case until it has ended."""
    spent = spent_usd(record, now=now)
    return max(record.reserved_usd or ZERO, spent) if record.is_open else spent


def is_unbounded(record: LaunchRecord) -> bool:
    """Return whether a launch may still cost money, and nobody knows how much at worst."""
    return record.is_open and record.reserved_usd is None


def closing_line(record: LaunchRecord, *, now: datetime) -> str:
    """Return the one line that says what a launch came to."""
    spent = spent_usd(record, now=now)
    most = "at most " if any(one.is_bound for one in record.attempts) else ""
    predicted = "no prediction"
    if record.usd_low is not None and record.usd_high is not None:
        predicted = f"predicted ${record.usd_low:,.2f}–{record.usd_high:,.2f}"
    elif record.usd_expected is not None:
        predicted = f"predicted ${record.usd_expected:,.2f}"
    if record.term_usd is not None:
        predicted += f" of a term of ${record.term_usd:,.2f}, paid used or not"
    has_rented = spent and any(one.usd_per_hour is not None for one in record.attempts)
    saved = f"saved at {record.results}" if has_rented else "nothing was rented"
    return f"spent {most}${spent:,.2f}, {predicted}, {saved}"
