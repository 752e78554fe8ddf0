"""The answer from jobs and what there is: times, needs by month, what is short, and a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta

from ...catalog.errors import UsageError
from ...catalog.units import HOURS_PER_DAY
from ..budget.project.months import Month, hours_until
from ..budget.project.project import Project
from .answer import (
    AcceleratorNeed,
    CapacityOverTime,
    CommitmentMix,
    CommittedNodes,
    JobTimes,
    Shortage,
)
from .commitments import Prices, machine_jobs, mixes, on_demand_usd
from .draws import drawn_shares, ends, placed_draws, use_within
from .jobs import Job
from .order import ordered
from .place import Placed, place

MOST_JOBS = 1000
"""More take minutes to place."""
LATE_DAYS = 0.05
"""What is less is not worth a word."""


def capacity_over_time(
    project: Project,
    jobs: Sequence[Job],
    have: Mapping[str, int],
    prices: Mapping[str, Prices] | None = None,
) -> CapacityOverTime:
    """Return what a project wants over time, and when it is done with what there is.

    Args:
        project: of the jobs.
        jobs: what `jobs_of` returned.
        have: accelerators by canonical name; of other kinds there are as many as are wanted.
        prices: of machines that are rented on demand and can be committed, by `Job.machine`.

    Raises:
        UsageError: one run needs more accelerators than there are, or there are too many runs.
    """
    if have and len(jobs) > MOST_JOBS:
        raise UsageError(
            f"{project.name} has {len(jobs):,} sets of runs, repetitions counted; at most"
            f" {MOST_JOBS:,} are put in order.",
            fix="leave --have out, or plan a shorter time.",
        )
    _refuse_too_large(jobs, have)
    wanted = place(jobs, {})
    best = ordered(jobs, have)
    shares = drawn_shares(jobs)
    at_once = [one.at_once for one in best.placed]
    in_draws = placed_draws(jobs, have, shares, best.order, at_once)
    as_wanted = [job.wanted_at_once for job in jobs]
    wanted_draws = placed_draws(jobs, {}, shares, range(len(jobs)), as_wanted)
    end_low, end_high = ends([_last_h(one) for one in in_draws])
    shortages = tuple(_shortages(project, jobs, wanted, best.placed, have))
    times = _times(project, jobs, wanted, best.placed)
    found = CapacityOverTime(
        project=project.name,
        start=project.start.first_day,
        have=dict(have),
        headline="",
        how=best.how,
        wanted_end=_day(project.start, _last_h(wanted)),
        end=_day(project.start, _last_h(best.placed)),
        end_low=_day(project.start, end_low),
        end_high=_day(project.start, end_high),
        draws=len(shares),
        jobs=tuple(times),
        needs=tuple(_needs(project, jobs, have, wanted, wanted_draws, best.placed)),
        shortages=shortages,
        commitments=tuple(_commitments(project, jobs, best.placed, have, prices or {})),
        uncommitted=tuple(
            machine
            for machine, numbers in machine_jobs(jobs, best.placed).items()
            if machine not in (prices or {}) and jobs[numbers[0]].accelerator not in have
        ),
    )
    return found.model_copy(update={"headline": _headline(found)})


def _refuse_too_large(jobs: Sequence[Job], have: Mapping[str, int]) -> None:
    for job in jobs:
        count = have.get(job.accelerator)
        if count is not None and job.per_run > count:
            raise UsageError(
                f"{job.experiment}: one run is planned on {job.per_run} × {job.accelerator}, and"  # noqa: RUF001
                f" there are {count}.",
                fix=f"give --have {job.accelerator}:{job.per_run}, or hold its plan to what there"
                " is with `nodes`, `max_nodes` or `accelerator` in the project file.",
            )


def _times(
    project: Project, jobs: Sequence[Job], wanted: Sequence[Placed], placed: Sequence[Placed]
) -> list[JobTimes]:
    rows = [
        (
            one.begin_h,
            JobTimes(
                name=job.name,
                experiment=job.experiment,
                accelerator=job.accelerator,
                accelerators_wanted=free.accelerators,
                accelerators=one.accelerators,
                wanted_begin=_day(project.start, free.begin_h),
                wanted_end=_day(project.start, free.end_h),
                begin=_day(project.start, one.begin_h),
                end=_day(project.start, one.end_h),
                slips_days=max(0.0, one.end_h - free.end_h) / HOURS_PER_DAY,
                priority=job.priority,
            ),
        )
        for job, free, one in zip(jobs, wanted, placed, strict=True)
    ]
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _needs(
    project: Project,
    jobs: Sequence[Job],
    have: Mapping[str, int],
    wanted: Sequence[Placed],
    draws: Sequence[Sequence[Placed]],
    placed: Sequence[Placed],
) -> list[AcceleratorNeed]:
    """Return what every month wants of each kind, with its range over the draws."""
    last_h = max(_last_h(one) for one in (wanted, placed, *draws))
    found: list[AcceleratorNeed] = []
    month = project.start
    while (first_h := hours_until(project.start, month)) < last_h:
        end_h = first_h + month.hours
        for kind in sorted({job.accelerator for job in jobs}):
            likely = use_within(jobs, wanted, kind, first_h, end_h)
            used = use_within(jobs, placed, kind, first_h, end_h)
            drawn = [use_within(jobs, one, kind, first_h, end_h) for one in draws]
            mean_low, mean_high = ends([one.mean for one in drawn])
            peak_low, peak_high = ends([one.peak for one in drawn])
            count = have.get(kind)
            short = sum(count is not None and one.peak > count for one in drawn) / len(drawn)
            if likely.peak or used.peak or peak_high >= 1:
                found.append(
                    AcceleratorNeed(
                        month=month,
                        accelerator=kind,
                        mean=likely.mean,
                        mean_low=mean_low,
                        mean_high=mean_high,
                        peak=likely.peak,
                        peak_low=math.floor(peak_low),
                        peak_high=math.ceil(peak_high),
                        have=count,
                        used=used.mean,
                        short_probability=short,
                    )
                )
        month = month.plus(1)
    return found


def _shortages(
    project: Project,
    jobs: Sequence[Job],
    wanted: Sequence[Placed],
    placed: Sequence[Placed],
    have: Mapping[str, int],
) -> list[Shortage]:
    found: list[Shortage] = []
    for kind, count in have.items():
        own = [
            (free, one)
            for job, free, one in zip(jobs, wanted, placed, strict=True)
            if job.accelerator == kind
        ]
        moments = sorted(free.begin_h for free, _ in own)
        using = {
            at: sum(free.accelerators for free, _ in own if free.begin_h <= at < free.end_h)
            for at in moments
        }
        short = [at for at in moments if using[at] > count]
        if not short:
            continue
        begin_h, end_h = min(one.begin_h for _, one in own), max(one.end_h for _, one in own)
        hours = sum((one.end_h - one.begin_h) * one.accelerators for _, one in own)
        found.append(
            Shortage(
                accelerator=kind,
                have=count,
                wanted=max(using.values()),
                short_from=_day(project.start, short[0]),
                utilisation=hours / (count * (end_h - begin_h)),
            )
        )
    return found


def _commitments(
    project: Project,
    jobs: Sequence[Job],
    placed: Sequence[Placed],
    have: Mapping[str, int],
    prices: Mapping[str, Prices],
) -> Iterator[CommitmentMix]:
    """Yield the mixes of every type of machine that is rented; what one has is paid already."""
    for machine, numbers in machine_jobs(jobs, placed).items():
        kind = jobs[numbers[0]].accelerator
        known = prices.get(machine)
        if known is None or kind in have:
            continue
        uses = [placed[number] for number in numbers]
        nodes = [placed[number].at_once * jobs[number].nodes for number in numbers]
        on_demand = on_demand_usd(uses, known, nodes)
        for one in mixes(uses, known, nodes):
            yield CommitmentMix(
                machine=machine,
                accelerator=kind,
                term_years=float(one.term_years),
                break_even_share=float(one.break_even),
                committed=tuple(
                    CommittedNodes(begin=_day(project.start, begin_h), nodes=count)
                    for begin_h, count in one.committed
                ),
                used_share=one.used,
                usd=one.usd,
                on_demand_usd=on_demand,
            )


def _headline(found: CapacityOverTime) -> str:
    """Return what a colleague would say first."""
    late = [one for one in found.jobs if one.slips_days >= LATE_DAYS]
    likely = f"likely ends on {found.end}"
    if found.end_low < found.end_high:
        likely += f" ({found.end_low} to {found.end_high})"
    if not found.have:
        peaks = _peaks(found)
        return f"The project {likely} with as many accelerators as it wants: {peaks}."
    here = " and ".join(f"{count} × {kind}" for kind, count in found.have.items())  # noqa: RUF001
    if not late:
        return f"{here} are enough: nothing waits, and the project {likely}."
    worst = max(late, key=lambda one: one.slips_days)
    days = (found.end - found.wanted_end).days
    delay = f", {_days(days)} later than it could" if days >= 1 else ", no later than it could"
    more = "; ".join(
        f"{one.wanted - one.have} more {one.accelerator} by {one.short_from}"
        for one in found.shortages
    )
    return (
        f"With {here} the project {likely}{delay}. {_counted(len(late))} later than wanted,"
        f" {worst.name} by {_days(worst.slips_days)}{' (most)' if len(late) > 1 else ''}."
        + (f" With {more} nothing would." if more else "")
    )


def _peaks(found: CapacityOverTime) -> str:
    highest: dict[str, AcceleratorNeed] = {}
    for one in found.needs:
        known = highest.get(one.accelerator)
        if known is None or one.peak > known.peak:
            highest[one.accelerator] = one
    return ", ".join(
        f"at most {one.peak} × {one.accelerator} ({one.month})"  # noqa: RUF001
        for one in highest.values()
    )


def _counted(count: int) -> str:
    return "One set of runs ends" if count == 1 else f"{count} sets of runs end"


def _days(days: float) -> str:
    if days < 1:
        hours = round(HOURS_PER_DAY * days)
        return f"{hours} hour{'' if hours == 1 else 's'}"
    whole = round(days)
    return f"{whole} day{'' if whole == 1 else 's'}"


def _last_h(placed: Sequence[Placed]) -> float:
    return max((one.end_h for one in placed), default=0.0)


def _day(start: Month, hours: float) -> date:
    return (datetime.combine(start.first_day, time()) + timedelta(hours=hours)).date()
