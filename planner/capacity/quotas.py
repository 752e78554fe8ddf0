"""What an account's quotas let a project do: units that its runs take, and when to ask for more.

A quota counts machines of one or more types in one region, or in all, in a unit of its own (vCPUs,
GPUs). What else runs in the account now is taken to go on, so that a project has what is left. Sets
of runs of which not even one run fits never start; they are timed as if they had been asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import accumulate

from .jobs import Job
from .place import Placed

WEEKEND = (5, 6)


@dataclass(frozen=True, kw_only=True)
class QuotaLimit:
    """One quota of the account, and what it counts of a project."""

    provider: str
    region: str
    """`global`: of all regions together."""
    name: str
    """As the provider's own pages call it."""
    code: str
    unit: str
    limit: float
    used: float | None
    """By all that runs in the account now; None where it is not known."""
    per_node: Mapping[str, float]
    """Units of one node, by `Job.sku`."""
    answer_days: int | None = None
    """Working days that the provider usually takes to answer; None where that is not known."""

    @property
    def key(self) -> str:
        """What jobs call it: no two quotas have the same."""
        return f"quota {self.provider} {self.region} {self.code}"

    @property
    def free(self) -> int:
        """Whole units that are left to the project."""
        return max(0, math.floor(self.limit - (self.used or 0.0)))


def with_quotas(jobs: Sequence[Job], quotas: Sequence[QuotaLimit]) -> list[Job]:
    """Return the jobs with what they take of quotas; those that never start take nothing."""
    closed = never_start(jobs, quotas)
    return [
        job if number in closed else replace(job, quotas=_taken(job, quotas))
        for number, job in enumerate(jobs)
    ]


def never_start(jobs: Sequence[Job], quotas: Sequence[QuotaLimit]) -> dict[int, str]:
    """Return the numbers of the jobs that never start, and why: too large, or after such a one."""
    free = {one.key: one for one in quotas}
    found: dict[int, str] = {}
    for number, job in enumerate(jobs):
        for key, units in _taken(job, quotas):
            one = free[key]
            if units > one.free:
                found[number] = (
                    f"one run takes {units:,} {one.unit} of {one.name}, and {one.free:,} are left"
                )
        before = next((other for other in job.after if other in found), None)
        if number not in found and before is not None:
            found[number] = f"it comes after {jobs[before].name}, which cannot start"
    return found


@dataclass(frozen=True, kw_only=True)
class QuotaWanted:
    """What a project wants of one quota, with as many machines as it wants."""

    units: int
    """At the same time."""
    short_from_h: float | None
    """From this moment on more is wanted than is left, hours from the begin; None: never."""


def wanted_of(quota: QuotaLimit, jobs: Sequence[Job], wanted: Sequence[Placed]) -> QuotaWanted:
    """Return how many units a project wants of a quota at the same time, and from when too many.

    Args:
        quota: the quota.
        jobs: of the project.
        wanted: when they go on with as many machines as they want.
    """
    # What ends at a moment is free for what begins then.
    changes = sorted(
        change
        for job, one in zip(jobs, wanted, strict=True)
        for _, units in _taken(job, [quota])
        if one.end_h > one.begin_h
        for change in (
            (one.begin_h, 1, units * one.at_once),
            (one.end_h, 0, -units * one.at_once),
        )
    )
    using = list(accumulate(units for _, _, units in changes))
    short = [at_h for (at_h, _, _), units in zip(changes, using, strict=True) if units > quota.free]
    return QuotaWanted(units=max(using, default=0), short_from_h=short[0] if short else None)


def ask_by(needed: date, answer_days: int | None, today: date | None) -> date | None:
    """Return the day to ask on, so many working days earlier and no day that is past.

    >>> ask_by(date(2027, 1, 4), 2, None)
    datetime.date(2026, 12, 31)
    """
    if answer_days is None:
        return None
    day, left = needed, answer_days
    while left:
        day -= timedelta(days=1)
        left -= day.weekday() not in WEEKEND
    return day if today is None else max(day, today)


def _taken(job: Job, quotas: Sequence[QuotaLimit]) -> tuple[tuple[str, int], ...]:
    return tuple(
        (one.key, math.ceil(job.nodes * one.per_node[job.sku]))
        for one in quotas
        if job.sku in one.per_node
    )
