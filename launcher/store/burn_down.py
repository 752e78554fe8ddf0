"""What an open launch has spent of what was planned, and what it comes to at its present rate.

Pure arithmetic on what the store keeps. The store knows no progress of the training, so the
forecast is the plan's own cost: what it is sure to pass, since it is spent already, is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from .accounting import ZERO, attempt_usd, spent_usd
from .launch_record import Attempt, LaunchRecord

NOTHING_PAID = 2
"""Points of a launch for which nothing was paid: when it was made, and now."""
STEPS = 24
"""Points of an attempt's line: enough to show the stairs of a provider that bills by the hour."""


@dataclass(frozen=True, kw_only=True)
class BurnDown:
    """Dollars of one launch; None where something is not known."""

    spent: tuple[tuple[datetime, Decimal], ...]
    """What was spent until when, from its begin until now."""
    usd_per_hour: Decimal | None
    """What its machines cost now, all nodes; None where none are known to run."""
    planned_usd: Decimal | None
    low_usd: Decimal | None
    """Low end of the planned 80 % interval."""
    high_usd: Decimal | None
    worst_usd: Decimal | None
    """The most that it may cost."""

    @property
    def now(self) -> datetime:
        """Return until when it is counted."""
        return self.spent[-1][0]

    @property
    def spent_usd(self) -> Decimal:
        """Return what is spent until now."""
        return self.spent[-1][1]

    @property
    def has_begun(self) -> bool:
        """Return whether machines were paid for at all."""
        return len(self.spent) > NOTHING_PAID

    @property
    def is_over(self) -> bool:
        """Return whether more is spent than the planned interval has."""
        return self.high_usd is not None and self.spent_usd > self.high_usd

    @property
    def end_usd(self) -> Decimal | None:
        """Return what it likely comes to.

        What was planned; once that is spent, the high end of the interval; once that is spent too,
        None: the plan says nothing about such a run any more.
        """
        for usd in (self.planned_usd, self.high_usd):
            if usd is not None and usd >= self.spent_usd:
                return usd
        return None

    @property
    def end_range_usd(self) -> tuple[Decimal, Decimal] | None:
        """Return the planned interval, as far as it is not spent yet; None where all of it is."""
        if self.low_usd is None or self.high_usd is None or self.is_over:
            return None
        return max(self.low_usd, self.spent_usd), self.high_usd

    def at(self, usd: Decimal) -> datetime | None:
        """Return when so much will be spent at the present rate; None without one, or long ago."""
        if not self.usd_per_hour or usd < self.spent_usd:
            return None
        hours = float((usd - self.spent_usd) / self.usd_per_hour)
        try:
            return self.now + timedelta(hours=hours)
        except OverflowError:
            return None


def burn_down(record: LaunchRecord, *, now: datetime) -> BurnDown:
    """Return what a launch has spent until now, and what it was planned with.

    Args:
        record: as the store has it.
        now: the time until which an open launch is counted.
    """
    last = record.last
    runs = record.is_open and last is not None and last.began_at is not None
    return BurnDown(
        spent=tuple(_spent(record, now)),
        usd_per_hour=last.usd_per_hour if runs and last and last.ended_at is None else None,
        planned_usd=record.usd_expected,
        low_usd=record.usd_low,
        high_usd=record.usd_high,
        worst_usd=record.usd_worst,
    )


def _spent(record: LaunchRecord, now: datetime) -> list[tuple[datetime, Decimal]]:
    before, points = ZERO, [(record.created_at, ZERO)]
    for one in record.attempts:
        if one.began_at is not None:
            points += [(at, before + usd) for at, usd in _line(record, one, max(now, one.began_at))]
        before += attempt_usd(record, one, now=now)
    until = now if record.is_open else points[-1][0]
    return [*points, (max(until, points[-1][0]), spent_usd(record, now=now))]


def _line(record: LaunchRecord, one: Attempt, now: datetime) -> list[tuple[datetime, Decimal]]:
    """Return an attempt's own dollars from its begin to its end."""
    assert one.began_at is not None
    end = max(one.until(now), one.began_at)
    if one.counted_usd is not None:
        # The guard counted the whole; nobody knows when of it.
        return [(one.began_at, ZERO), (end, one.counted_usd)]
    width = end - one.began_at
    times = [one.began_at + width * step / STEPS for step in range(1, STEPS + 1)]
    running = one.model_copy(update={"ended_at": None, "unknown_from": None})
    line = [(at, attempt_usd(record, running, now=at)) for at in times]
    return [(one.began_at, ZERO), *line[:-1], (end, attempt_usd(record, one, now=now))]
