"""An axis of time: where moments stand between two others, and labels at round times.

Times are those of this machine's zone, as a reader of the pages has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from .drawing import Tick

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400
STEPS_S = (
    *(MINUTE_S * one for one in (1, 2, 5, 10, 15, 30)),
    *(HOUR_S * one for one in (1, 2, 3, 6, 12)),
    *(DAY_S * one for one in (1, 2, 7, 14)),
)
MONTHS = (1, 2, 3, 6, 12)
DAYS_PER_MONTH = 30.44
MOST_TICKS = 5
EDGE = 0.04
"""A label nearer to an end of the axis than this would stand over its edge."""


@dataclass(frozen=True)
class TimeAxis:
    """From one time to a later one."""

    begin: datetime
    end: datetime

    def share(self, moment: datetime) -> float:
        """Return where a time stands, from 0 to 1; beyond an end, the end."""
        whole = (self.end - self.begin).total_seconds()
        at = (moment - self.begin).total_seconds()
        return min(1.0, max(0.0, at / whole)) if whole > 0 else 0.0

    def ticks(self) -> list[Tick]:
        """Return labels at round times, at most five or six."""
        whole_s = (self.end - self.begin).total_seconds()
        step_s = next((one for one in STEPS_S if whole_s / one <= MOST_TICKS), None)
        times = _by_months(self.begin, self.end) if step_s is None else self._rounds(step_s)
        form = "%H:%M" if step_s is not None and step_s < DAY_S else "%-d %b"
        if step_s is None:
            form = "%b %Y"
        found, day = [], None
        for one in times:
            # A clock time says its day where that is another than the one before.
            text = f"{one:{form}}"
            if form == "%H:%M" and one.date() != day and whole_s > DAY_S / 2:
                text = f"{one:%-d %b} {text}" if text != "00:00" else f"{one:%-d %b}"
            day = one.date()
            share = self.share(one)
            if EDGE <= share <= 1 - EDGE:
                found.append((share, text))
        return found

    def _rounds(self, step_s: int) -> Iterator[datetime]:
        begin = self.begin.astimezone()
        one = begin.replace(hour=0, minute=0, second=0, microsecond=0)
        while one <= self.end:
            if one >= begin:
                yield one
            one += timedelta(seconds=step_s)


def _by_months(begin: datetime, end: datetime) -> Iterator[datetime]:
    months = (end - begin).total_seconds() / DAY_S / DAYS_PER_MONTH
    step = next((one for one in MONTHS if months / one <= MOST_TICKS), 12)
    step *= max(1, -int(-months // (step * (MOST_TICKS + 1))))
    first = begin.astimezone().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    month = first.year * 12 + first.month - 1
    while True:
        one = first.replace(year=month // 12, month=month % 12 + 1)
        if one > end:
            return
        if one >= begin and (month % step == 0):
            yield one
        month += 1
