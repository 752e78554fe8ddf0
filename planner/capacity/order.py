"""In which order jobs take scarce accelerators, so that little slips: HiGHS where it pays.

A time-indexed program (Pritsker, Watters and Wolfe 1969, "Multiproject scheduling with limited
resources"): x[j, m, t] = 1 where job j begins in slot t, with so many runs at once as mode m says,

    minimise    Σ priority[j] × (t + d[j, m]) × x[j, m, t]
    one begin   Σ_m,t x[j, m, t] = 1
    precedence  Σ_m,t t × x[k, m, t] ≥ Σ_m,t (t + d[j, m]) × x[j, m, t]           k after j
    machines    Σ_j,m Σ_{t - d[j, m] < s ≤ t} a[j, m] × x[j, m, s] ≤ have         each name and slot

Durations are rounded up to whole slots, so its begins hold in true time too; `place` then moves
every job as early as that order lets it. Where nothing is scarce no program is solved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .jobs import Job
from .place import Have, Placed, place, weighted_end_h

SLOTS = 100
"""Of the time that the best simple rule takes."""
TIME_LIMIT_S = 6.0
MOST_BEGINS = 60_000
"""Variables of a program that HiGHS gets anywhere with in that time."""
INSTALL = 'pip install "gpuplan[capacity]"'


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """Jobs with their times, and how good that is."""

    placed: list[Placed]
    order: tuple[int, ...]
    how: str
    """How the order was found, in words."""


def ordered(jobs: Sequence[Job], have: Have, *, slot_h: float | None = None) -> Ordered:
    """Return the jobs in the order in which the least slips, weighted by priority.

    Args:
        jobs: each needs no more for one run than there are.
        have: what there is by name.
        slot_h: hours of a slot of the program; None: a hundredth of the time that is needed.
    """
    tried = [(order, place(jobs, have, order)) for order in _rules(jobs)]
    order, placed = min(tried, key=lambda one: weighted_end_h(jobs, one[1]))
    if weighted_end_h(jobs, placed) <= weighted_end_h(jobs, place(jobs, {})) + 1e-9:
        return Ordered(placed=placed, order=order, how="nothing has to wait for machines")
    last_h = max(one.end_h for one in placed)
    slot_h = slot_h or last_h / SLOTS
    # Durations are rounded up: a little more time than the best rule takes.
    slots = math.ceil(last_h / slot_h) + min(len(jobs), SLOTS // 2)
    solved = _solved(jobs, have, slot_h, slots)
    if isinstance(solved, str):
        how = f"the best of {len(tried)} rules: {solved}"
        return Ordered(placed=placed, order=order, how=how)
    found = tuple(sorted(range(len(jobs)), key=lambda one: (solved.begins[one], one)))
    better = place(jobs, have, found, at_once=solved.at_once)
    if weighted_end_h(jobs, better) <= weighted_end_h(jobs, placed):
        placed, order = better, found
    step = f"{slot_h:.0f}-hour" if slot_h >= 1 else f"{60 * slot_h:.0f}-minute"
    how = f"the least that can slip, in {step} steps" if solved.is_best else "the best found in 6 s"
    return Ordered(placed=placed, order=order, how=how)


Key = Callable[[int], tuple[float, ...]]


def _rules(jobs: Sequence[Job]) -> list[tuple[int, ...]]:
    """Return orders by simple rules, the project's own first."""
    wanted = place(jobs, {})

    def begin_first(number: int) -> tuple[float, ...]:
        return (wanted[number].begin_h,)

    def priority_first(number: int) -> tuple[float, ...]:
        return (-jobs[number].priority, wanted[number].begin_h)

    def short_first(number: int) -> tuple[float, ...]:
        one = wanted[number]
        work = (one.end_h - one.begin_h) * one.accelerators
        return (work / jobs[number].priority, one.begin_h)

    def long_first(number: int) -> tuple[float, ...]:
        return (-short_first(number)[0], wanted[number].begin_h)

    keys = (begin_first, priority_first, short_first, long_first)
    return [tuple(range(len(jobs))), *(_in_order(jobs, key) for key in keys)]


def _in_order(jobs: Sequence[Job], key: Key) -> tuple[int, ...]:
    """Return the jobs by a key, none before one that it comes after."""
    left, order = set(range(len(jobs))), list[int]()
    while left:
        free = [one for one in left if not any(other in left for other in jobs[one].after)]
        order.append(min(free, key=lambda one: (key(one), one)))
        left.remove(order[-1])
    return tuple(order)


@dataclass(frozen=True)
class _Solution:
    begins: list[int]
    """Slots."""
    at_once: list[int]
    is_best: bool
    """Whether it is proven that no other one is better."""


@dataclass(frozen=True)
class _Begin:
    """What a variable of the program stands for."""

    job: int
    at_once: int
    slot: int
    end: int
    """Slot after the last one."""


class _Rows:
    """Linear constraints, one after another."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.column: list[int] = []
        self.factor: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        """Add low ≤ Σ factor × variable ≤ high."""
        self.row += [len(self.low)] * len(terms)
        self.column += [index for index, _ in terms]
        self.factor += [factor for _, factor in terms]
        self.low.append(low)
        self.high.append(high)


def _solved(jobs: Sequence[Job], have: Have, slot_h: float, slots: int) -> _Solution | str:
    """Return when each job begins; why it is not known where it is not."""
    try:
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array
    except ImportError:
        return f"scipy, which finds a better one, is not installed ({INSTALL})"
    begins = _begins(jobs, have, slot_h, slots)
    if len(begins) > MOST_BEGINS:
        return f"{len(jobs)} sets of runs are too many for HiGHS"
    rows = _rows(jobs, have, begins)
    shape = (len(rows.low), len(begins))
    matrix = coo_array((rows.factor, (rows.row, rows.column)), shape=shape).tocsr()
    answer = milp(
        np.array([float(jobs[one.job].priority * one.end) for one in begins]),
        integrality=np.ones(len(begins)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(
            matrix,
            np.array(rows.low),  # pyright: ignore[reportArgumentType]
            np.array(rows.high),  # pyright: ignore[reportArgumentType]
        ),
        options={"time_limit": TIME_LIMIT_S},
    )
    if answer.x is None:
        return "HiGHS found none in time"
    chosen: dict[int, tuple[float, _Begin]] = {}
    for value, one in zip(answer.x, begins, strict=True):
        if value > chosen.get(one.job, (-1.0, one))[0]:
            chosen[one.job] = (float(value), one)
    best = [chosen[number][1] for number in range(len(jobs))]
    return _Solution([one.slot for one in best], [one.at_once for one in best], answer.status == 0)


def _rows(jobs: Sequence[Job], have: Have, begins: Sequence[_Begin]) -> _Rows:
    rows = _Rows()
    own: list[list[int]] = [[] for _ in jobs]
    for index, one in enumerate(begins):
        own[one.job].append(index)
    for number, job in enumerate(jobs):
        rows.add([(index, 1.0) for index in own[number]], 1.0, 1.0)
        starts = [(index, float(begins[index].slot)) for index in own[number]]
        for other in job.after:
            ends = [(index, -float(begins[index].end)) for index in own[other]]
            rows.add([*starts, *ends], 0.0, math.inf)
    for name, count in have.items():
        using: dict[int, list[tuple[int, float]]] = {}
        each = [dict(job.takes).get(name, 0) for job in jobs]
        for index, one in enumerate(begins):
            if each[one.job]:
                for slot in range(one.slot, one.end):
                    using.setdefault(slot, []).append((index, float(one.at_once * each[one.job])))
        for terms in using.values():
            rows.add(terms, 0.0, float(count))
    return rows


def _begins(jobs: Sequence[Job], have: Have, slot_h: float, slots: int) -> list[_Begin]:
    """Return every begin of every job that what it comes after, and what comes after it, allow."""
    lengths: list[dict[int, int]] = [
        {
            at_once: max(1, math.ceil(job.hours(at_once) / slot_h - 1e-9))
            for at_once in job.at_once(have)
        }
        for job in jobs
    ]
    shortest = [min(one.values()) for one in lengths]
    first = [math.ceil(job.earliest_h / slot_h - 1e-9) for job in jobs]
    for number, job in enumerate(jobs):
        first[number] = max([first[number], *(first[one] + shortest[one] for one in job.after)])
    last_end = [slots] * len(jobs)
    for number in reversed(range(len(jobs))):
        for one in jobs[number].after:
            last_end[one] = min(last_end[one], last_end[number] - shortest[number])
    return [
        _Begin(number, at_once, slot, slot + length)
        for number, modes in enumerate(lengths)
        for at_once, length in modes.items()
        for slot in range(first[number], last_end[number] - length + 1)
    ]
