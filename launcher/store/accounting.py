"""What launches cost: pure sums over what is kept of them. Dollars are exact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from ...catalog.units import SECONDS_PER_HOUR
from ...planner.cost.billing import billed_seconds
from ...planner.cost.run_cost import CENT
from .launch_record import BOUNDS, Attempt, LaunchRecord

ZERO = Decimal(0)


def attempt_usd(record: LaunchRecord, attempt: Attempt, *, now: datetime) -> Decimal:
    """Return what an attempt has cost so far: 0 where nothing was rented.

    hours paid for (rounded up as the provider does) x the price of all nodes.
    """
    if attempt.counted_usd is not None:
        return attempt.counted_usd
    if attempt.began_at is None or attempt.usd_per_hour is None:
        return ZERO
    return _usd_until(record, attempt, attempt.until(now), attempt.usd_per_hour)


def _usd_until(
    record: LaunchRecord, attempt: Attempt, until: datetime, usd_per_hour: Decimal
) -> Decimal:
    """Return what an attempt cost until a time, at a price of all nodes."""
    began_at = attempt.began_at or attempt.asked_at
    seconds = max(0.0, (until - began_at).total_seconds())
    billed_s = billed_seconds(
        seconds, increment_s=record.billing_increment_s, minimum_s=record.minimum_s
    )
    hours = Decimal(str(billed_s)) / Decimal(SECONDS_PER_HOUR)
    return (hours * usd_per_hour).quantize(CENT)


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
    return spent_by_month(record, now=now).get(month, ZERO)


def spent_by_month(record: LaunchRecord, *, now: datetime) -> dict[str, Decimal]:
    """Return what a launch has cost in each month of its attempts, in order; their sum is exact."""
    months: dict[str, Decimal] = {}
    for one in record.attempts:
        left, shares = attempt_usd(record, one, now=now), shares_by_month(one, now=now)
        for month, share in shares.items():
            part = (attempt_usd(record, one, now=now) * share).quantize(CENT)
            part = left if month == list(shares)[-1] else min(part, left)
            months[month] = months.get(month, ZERO) + part
            left -= part
    return dict(sorted(months.items()))


def shares_by_month(attempt: Attempt, *, now: datetime) -> dict[str, Decimal]:
    """Return the months in which an attempt was (UTC), in order, with the fraction of its time."""
    began_at = (attempt.began_at or attempt.asked_at).astimezone(UTC)
    ended_at = attempt.until(began_at if attempt.began_at is None else now)
    whole_s = (ended_at - began_at).total_seconds()
    if whole_s <= 0:
        return {f"{began_at:%Y-%m}": Decimal(1)}
    shares: dict[str, Decimal] = {}
    at = began_at
    while at < ended_at:
        first = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        after = min(ended_at, (first + timedelta(days=31)).replace(day=1))
        shares[f"{at:%Y-%m}"] = Decimal(str((after - at).total_seconds() / whole_s))
        at = after
    return shares


def node_hours(record: LaunchRecord, *, now: datetime) -> float:
    """Return for how many node-hours machines ran, all attempts."""
    spans_s = (
        max(0.0, (one.until(now) - one.began_at).total_seconds())
        for one in record.attempts
        if one.began_at is not None
    )
    return record.nodes * sum(spans_s) / SECONDS_PER_HOUR


def node_hours_in(record: LaunchRecord, month: str, *, now: datetime) -> float:
    """Return for how many node-hours machines ran in a month, all attempts."""
    hours = 0.0
    for one in record.attempts:
        alone = record.model_copy(update={"attempts": (one,)})
        share = shares_by_month(one, now=now).get(month, ZERO)
        hours += node_hours(alone, now=now) * float(share)
    return hours


def committed_usd(record: LaunchRecord, *, now: datetime) -> Decimal:
    """Return what a launch counts for in a limit: its worst case until it is known to have ended.

    Where neither its end nor a worst case is known: what its machines cost until the user closed
    it, who had looked that they are gone.
    """
    spent = spent_usd(record, now=now)
    if record.is_open:
        return max(record.reserved_usd or ZERO, spent)
    unknown = _unknown(record)
    if unknown is None:
        return spent
    return max(record.reserved_usd or spent + _after_usd(record, unknown), spent)


def closed_unknown_at(record: LaunchRecord) -> datetime | None:
    """Return when the user closed a launch of whose end nothing is known; None for another."""
    unknown = _unknown(record)
    return None if unknown is None else unknown.ended_at


def _unknown(record: LaunchRecord) -> Attempt | None:
    return next((one for one in record.attempts if one.unknown_from is not None), None)


def _after_usd(record: LaunchRecord, attempt: Attempt) -> Decimal:
    """Return what an attempt may have cost from when nothing is known of it until it was closed."""
    closed_at = attempt.ended_at or attempt.asked_at
    dearest = max((one.usd_per_hour for one in record.places), default=ZERO) * record.nodes
    rate = max(dearest + (record.controller_usd_per_hour or ZERO), attempt.usd_per_hour or ZERO)
    known = attempt_usd(record, attempt, now=closed_at)
    return max(ZERO, _usd_until(record, attempt, closed_at, rate) - known)


def is_unbounded(record: LaunchRecord) -> bool:
    """Return whether a launch may still cost money, and nobody knows how much at worst."""
    return record.is_open and record.reserved_usd is None


def closing_line(record: LaunchRecord, *, now: datetime) -> str:
    """Return the one line that says what a launch came to."""
    spent = spent_usd(record, now=now)
    predicted = "no prediction"
    if record.usd_low is not None and record.usd_high is not None:
        predicted = f"predicted ${record.usd_low:,.2f}–{record.usd_high:,.2f}"
    elif record.usd_expected is not None:
        predicted = f"predicted ${record.usd_expected:,.2f}"
    if record.term_usd is not None:
        predicted += f" of a term of ${record.term_usd:,.2f}, paid used or not"
    # Machines of one's own may cost nothing.
    has_rented = any(
        one.usd_per_hour is not None and one.began_at is not None for one in record.attempts
    )
    is_saved = has_rented or record.is_unknown
    saved = f"saved at {record.results}" if is_saved else "nothing was rented"
    if (
        is_saved
        and record.fetch is not None
        and not any(one.are_results_here in (None, True) for one in record.attempts)
    ):
        saved = f"no results are at {record.results}"
    return f"spent {BOUNDS[record.bound]}${spent:,.2f}, {predicted}, {saved}"
