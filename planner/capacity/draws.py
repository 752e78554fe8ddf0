"""How sure it is: the same jobs with the times of their runs drawn from their intervals.

A run's hours are lognormal on either side of the likely ones, so that 10 % of the draws lie below
the lower end of its 80 % interval and 10 % above the upper. A part of what they are off by all runs
share, as in the sums of `budget.ranges`; runs of one setting, which have one plan, share all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ..budget.project.defaults import default
from .jobs import Job
from .place import Have, Placed, place

SEED = 0
MOST_DRAWS = 200
MOST_PLACED = 20_000
"""Jobs times draws: a large project is drawn less often."""
TENTH = 1.2815515655446004
"""Standard deviations from the median beyond which 10 % of a normal distribution lie."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """Accelerators of one kind over a span of time."""

    mean: float
    peak: int


def drawn_shares(jobs: Sequence[Job]) -> list[list[float]]:
    """Return, for each draw, how long every job takes as a share of its likely time."""
    draws = max(1, min(MOST_DRAWS, MOST_PLACED // max(1, len(jobs))))
    chance = np.random.default_rng(SEED)
    plans = sorted({_plan(job) for job in jobs})
    shared = default("shared_error")[0]
    found: list[list[float]] = []
    for _ in range(draws):
        common, own = chance.standard_normal(), chance.standard_normal(len(plans))
        off = (math.sqrt(shared) * common + math.sqrt(1 - shared) * own) / TENTH
        by_plan = dict(zip(plans, off.tolist(), strict=True))
        found.append([_share(job, by_plan[_plan(job)]) for job in jobs])
    return found


def placed_draws(
    jobs: Sequence[Job],
    have: Have,
    shares: Sequence[Sequence[float]],
    order: Sequence[int],
    at_once: Sequence[int],
) -> list[list[Placed]]:
    """Return the jobs' times in every draw, in one order and with as many runs at once."""
    return [place(jobs, have, order, at_once=at_once, shares=one) for one in shares]


def use_within(
    jobs: Sequence[Job], placed: Sequence[Placed], kind: str, first_h: float, last_h: float
) -> Use:
    """Return how many accelerators of a kind are in use between two moments."""
    own = [
        (max(one.begin_h, first_h), min(one.end_h, last_h), one.accelerators)
        for job, one in zip(jobs, placed, strict=True)
        if job.accelerator == kind and one.begin_h < last_h and one.end_h > first_h
    ]
    hours = sum((end - begin) * count for begin, end, count in own)
    # What ends at a moment is free for what begins then.
    changes = sorted(
        [(begin, 1, count) for begin, _, count in own] + [(end, 0, -count) for _, end, count in own]
    )
    peak = max(accumulate(count for _, _, count in changes), default=0)
    return Use(mean=hours / (last_h - first_h), peak=peak)


def ends(values: Sequence[float]) -> tuple[float, float]:
    """Return between which values 80 % lie."""
    low, high = np.percentile(np.asarray(values), [10, 90])
    return float(low), float(high)


def _plan(job: Job) -> str:
    return job.name.partition(" #")[0]


def _share(job: Job, normal: float) -> float:
    """Return a job's time as a share of the likely one; at -1 and 1 are the interval's ends."""
    side = job.longest if normal > 0 else 1 / job.shortest
    return float(side**normal)
