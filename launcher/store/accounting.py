"""What launches cost: pure sums over what is kept of them. Dollars are exact."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from ...catalog.errors import LimitError
from ...catalog.units import SECONDS_PER_HOUR
from ...planner.cost.launch_cost import billed_seconds
from ...planner.cost.run_cost import CENT
from .launch_record import Attempt, LaunchRecord

ZERO = Decimal(0)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What may be spent, in dollars; None limits nothing."""

    project_usd: Decimal | None = None
    owner_usd: Decimal | None = None
    month_usd: Decimal | None = None
    """Limit on all launches made in one calendar month (UTC)."""

    @property
    def any(self) -> bool:
        """Return whether anything is limited."""
        return (self.project_usd, self.owner_usd, self.month_usd) != (None, None, None)


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


def spent_usd(record: LaunchRecord, *, now: datetime) -> Decimal:
    """Return what a launch has cost so far, all attempts."""
    return sum((attempt_usd(record, one, now=now) for one in record.attempts), ZERO)


def node_hours(record: LaunchRecord, *, now: datetime) -> float:
    """Return for how many node-hours machines ran, all attempts."""
    spans_s = (
        ((one.ended_at or now) - one.began_at).total_seconds()
        for one in record.attempts
        if one.began_at is not None
    )
    return record.nodes * sum(spans_s) / SECONDS_PER_HOUR


def committed_usd(record: LaunchRecord, *, now: datetime) -> Decimal:
    """Return what a launch counts for in a limit: its worst case until it has ended."""
    spent = spent_usd(record, now=now)
    return max(record.reserved_usd or ZERO, spent) if record.is_open else spent


def refuse_beyond(
    wanted: LaunchRecord, others: Iterable[LaunchRecord], limits: Limits, *, now: datetime
) -> None:
    """Refuse a launch whose worst case would pass a limit, with what is committed already.

    Raises:
        LimitError: it would, or its worst case is not known.
    """
    if not limits.any:
        return
    if wanted.reserved_usd is None:
        raise LimitError(
            "There is a limit on spending, and how long this job runs is not known.",
            fix="give --steps, --max-cost or --max-hours.",
        )
    known = [one for one in others if one.run != wanted.run]
    month = _month(wanted.created_at)
    scopes = (
        ("project", wanted.project, limits.project_usd, [r for r in known if _same(r, wanted)]),
        ("owner", wanted.owner, limits.owner_usd, [r for r in known if r.owner == wanted.owner]),
        ("month", month, limits.month_usd, [r for r in known if _month(r.created_at) == month]),
    )
    for scope, name, limit, counted in scopes:
        if limit is None:
            continue
        committed = sum((committed_usd(one, now=now) for one in counted), ZERO)
        already = spent_usd(wanted, now=now)
        if committed + max(wanted.reserved_usd, already) > limit:
            open_runs = sum(one.is_open for one in counted)
            raise LimitError(
                f"At worst this costs ${wanted.reserved_usd:,.2f}; {scope} {name} has committed"
                f" ${committed:,.2f} of its ${limit:,.2f} ({open_runs} still open, counted at"
                " their worst).",
                fix=f"allow less with --max-cost, end what is open (`gpuplan status`), or raise"
                f" --{scope}-limit.",
            )


def closing_line(record: LaunchRecord, *, now: datetime) -> str:
    """Return the one line that says what a launch came to."""
    spent = spent_usd(record, now=now)
    most = "at most " if any(one.is_bound for one in record.attempts) else ""
    predicted = "no prediction"
    if record.usd_low is not None and record.usd_high is not None:
        predicted = f"predicted ${record.usd_low:,.2f}–{record.usd_high:,.2f}"
    elif record.usd_expected is not None:
        predicted = f"predicted ${record.usd_expected:,.2f}"
    saved = f"saved at {record.results}" if spent else "nothing was rented"
    return f"spent {most}${spent:,.2f}, {predicted}, {saved}"


def _same(record: LaunchRecord, wanted: LaunchRecord) -> bool:
    return record.project == wanted.project


def _month(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m}"
