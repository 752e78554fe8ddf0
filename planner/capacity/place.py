"""When jobs go on with the accelerators that there are: one after another, each as early as it can.

The serial schedule generation scheme: jobs are taken in an order in which none stands before one
it comes after, and each begins at the first moment from which enough accelerators are free for as
long as it takes. For every objective that no earlier end worsens, some order gives an optimal
schedule (Kolisch 1996, "Serial and parallel resource-constrained project scheduling methods
revisited", EJOR 90).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .jobs import Job


@dataclass(frozen=True, kw_only=True)
class Placed:
    """When a job goes on; hours from the project's begin."""

    begin_h: float
    end_h: float
    at_once: int
    """Runs at the same time."""
    accelerators: int
    """At the same time."""


Have = Mapping[str, int]
"""What there is by name, accelerators of a kind and units of a quota; of what it does not name
there is as much as is wanted."""


def place(
    jobs: Sequence[Job],
    have: Have,
    order: Sequence[int] | None = None,
    *,
    at_once: Sequence[int] | None = None,
    shares: Sequence[float] | None = None,
) -> list[Placed]:
    """Return when each job goes on, by the jobs' numbers.

    Args:
        jobs: each needs no more for one run than there is.
        have: what there is.
        order: of the jobs' numbers, none before one that it comes after; None: as they are.
        at_once: how many runs of each go on together; None: so many that each ends first.
        shares: how long each takes, as a share of the likely time; None: the likely time.
    """
    found: dict[int, Placed] = {}
    busy = {name: _Profile() for name in have}
    for number in range(len(jobs)) if order is None else order:
        job = jobs[number]
        ready_h = max([job.earliest_h, *(found[one].end_h for one in job.after)])
        scarce = [(busy[name], have[name], each) for name, each in job.takes if name in have]
        choices = job.at_once(have) if at_once is None else (at_once[number],)
        tried: list[Placed] = []
        for one in choices:
            hours = job.hours(one) * (1.0 if shares is None else shares[number])
            free = [(others, count - one * each) for others, count, each in scarce]
            begin_h = _first_free_h(free, ready_h, hours)
            end_h, used = begin_h + hours, one * job.per_run
            tried.append(Placed(begin_h=begin_h, end_h=end_h, at_once=one, accelerators=used))
        best = min(tried, key=lambda one: (one.end_h, one.accelerators))
        found[number] = best
        for others, _, each in scarce:
            others.add(best, best.at_once * each)
    return [found[number] for number in range(len(jobs))]


def _first_free_h(free: Sequence[tuple[_Profile, int]], ready_h: float, hours: float) -> float:
    """Return the first moment from which enough of everything is free for so many hours."""
    begin_h = ready_h
    while True:
        later_h = max(
            (one.first_free_h(most, begin_h, hours) for one, most in free), default=begin_h
        )
        if later_h == begin_h or len(free) < 2:
            return later_h
        begin_h = later_h


class _Profile:
    """How much of one thing is in use from each moment to the next."""

    def __init__(self) -> None:
        self._from_h = [0.0]
        self._used = [0]

    def first_free_h(self, free: int, ready_h: float, hours: float) -> float:
        """Return the first moment from which no more than `free` are in use for so many hours."""
        begin_h = ready_h
        for at in range(bisect_right(self._from_h, ready_h) - 1, len(self._used)):
            until_h = self._from_h[at + 1] if at + 1 < len(self._used) else math.inf
            if self._used[at] > free:
                begin_h = until_h
            elif until_h >= begin_h + hours:
                return begin_h
        raise AssertionError("after the last end everything is free")

    def add(self, one: Placed, used: int) -> None:
        """Use so much from the begin of a job to its end."""
        first, last = self._cut(one.begin_h), self._cut(one.end_h)
        for at in range(first, last):
            self._used[at] += used

    def _cut(self, at_h: float) -> int:
        """Return the number of the stretch that begins at a moment, made where there is none."""
        at = bisect_right(self._from_h, at_h) - 1
        if self._from_h[at] == at_h:
            return at
        self._from_h.insert(at + 1, at_h)
        self._used.insert(at + 1, self._used[at])
        return at + 1


def used_at(placed: Sequence[Placed], at_h: float) -> int:
    """Return how many accelerators are in use at a moment."""
    return sum(one.accelerators for one in placed if one.begin_h <= at_h < one.end_h)


def weighted_end_h(jobs: Sequence[Job], placed: Sequence[Placed]) -> float:
    """Return what is made small: the ends of all jobs, each times its priority."""
    return sum(job.priority * one.end_h for job, one in zip(jobs, placed, strict=True))
