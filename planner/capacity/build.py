"""The answer from jobs and what there is: times, needs by month, what is short, and a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from ...catalog.errors import UsageError
from ...catalog.units import HOURS_PER_DAY, HOURS_PER_YEAR
from ..budget.project.months import Month, hours_until
from ..budget.project.project import Project
from ..budget.report.capacity_rows import (
    AcceleratorNeed,
    CapacityOverTime,
    CheapestMix,
    CommitmentMix,
    CommittedNodes,
    CommittedTerm,
    JobTimes,
    QuotaNeed,
    Shortage,
)
from ..budget.schedule import LONGEST_YEARS
from .commitments import Prices, machine_jobs, mixes, on_demand_usd
from .draws import Use, drawn_shares, ends, placed_draws, use_within
from .headline import headline
from .jobs import Job
from .mix import cheapest_mix
from .order import ordered
from .place import Placed, place, used_at
from .quotas import QuotaLimit, ask_by, never_start, wanted_of, with_quotas

MOST_JOBS = 1000
"""More take minutes to place."""


def capacity_over_time(
    project: Project,
    jobs: Sequence[Job],
    have: Mapping[str, int],
    prices: Mapping[str, Prices] | None = None,
    *,
    quotas: Sequence[QuotaLimit] = (),
    quotas_unknown: Mapping[str, str] | None = None,
    today: date | None = None,
) -> CapacityOverTime:
    """Return what a project wants over time, and when it is done with what there is.

    Args:
        project: of the jobs.
        jobs: what `jobs_of` returned.
        have: accelerators by canonical name; of other kinds there are as many as are wanted.
        prices: of machines that are rented on demand and can be committed, by `Job.machine`.
        quotas: of the account, which hold what is rented to what is left of them.
        quotas_unknown: why, by machines whose quota is not known.
        today: no quota is asked for before it.

    Raises:
        UsageError: one run needs more accelerators than there are, or there are too many runs.
    """
    limits = {**have, **{one.key: one.free for one in quotas}}
    if limits and len(jobs) > MOST_JOBS:
        raise UsageError(
            f"{project.name} has {len(jobs):,} sets of runs, repetitions counted; at most"
            f" {MOST_JOBS:,} are put in order.",
            fix="leave `have` out (with --offline no quota is asked for), or plan a shorter time.",
        )
    _refuse_too_large(jobs, have)
    closed = never_start(jobs, quotas)
    jobs = with_quotas(jobs, quotas)
    best = ordered(jobs, limits)
    _refuse_too_late(jobs, best.placed)
    case = _Case(project, jobs, have, place(jobs, {}), best.placed, closed)
    shares = drawn_shares(jobs)
    at_once = [one.at_once for one in best.placed]
    in_draws = placed_draws(jobs, limits, shares, best.order, at_once)
    as_wanted = [job.wanted_at_once for job in jobs]
    wanted_draws = placed_draws(jobs, {}, shares, range(len(jobs)), as_wanted)
    end_low, end_high = ends([_last_h(one) for one in in_draws])
    mixed = list(_mixes(case, prices or {}))
    found = CapacityOverTime(
        project=project.name,
        start=project.start.first_day,
        have=dict(have),
        headline="",
        how=best.how,
        wanted_end=case.day(_last_h(case.wanted)),
        end=case.day(_last_h(case.placed)),
        end_low=case.day(end_low),
        end_high=case.day(end_high),
        draws=len(shares),
        jobs=tuple(_times(case)),
        needs=tuple(_needs(case, wanted_draws)),
        shortages=tuple(_shortages(case)),
        commitments=tuple(_commitments(case, prices or {})),
        mixes=tuple(one for one in mixed if not isinstance(one, str)),
        mixes_unknown=next((one for one in mixed if isinstance(one, str)), None),
        uncommitted=tuple(one for one in case.rented() if one not in (prices or {})),
        quotas=tuple(_quota(case, one, today) for one in quotas),
        quotas_unknown=dict(quotas_unknown or {}),
    )
    return found.model_copy(update={"headline": headline(found)})


@dataclass(frozen=True)
class _Case:
    """A project's jobs, when they would go on with all machines, and when they do."""

    project: Project
    jobs: Sequence[Job]
    have: Mapping[str, int]
    wanted: Sequence[Placed]
    placed: Sequence[Placed]
    never_start: Mapping[int, str]
    """Why, by the numbers of the jobs."""

    def day(self, hours: float) -> date:
        """Return the day of a moment, hours from the project's begin."""
        begin = datetime.combine(self.project.start.first_day, time())
        return (begin + timedelta(hours=hours)).date()

    def rented(self) -> dict[str, list[int]]:
        """Return the jobs by the machines that they rent; what one has is paid already."""
        found = machine_jobs(self.jobs, self.placed)
        return {
            machine: numbers
            for machine, numbers in found.items()
            if self.jobs[numbers[0]].accelerator not in self.have
        }


def _refuse_too_late(jobs: Sequence[Job], placed: Sequence[Placed]) -> None:
    last = max(range(len(jobs)), key=lambda number: placed[number].end_h)
    years = placed[last].end_h / HOURS_PER_YEAR
    if years > LONGEST_YEARS:
        raise UsageError(
            f"{jobs[last].name} would end {years:,.0f} years after the start of the project with so"
            f" few accelerators; at most {LONGEST_YEARS} are planned.",
            fix="say that you have more, or plan fewer runs.",
        )


def _refuse_too_large(jobs: Sequence[Job], have: Mapping[str, int]) -> None:
    for job in jobs:
        count = have.get(job.accelerator)
        if count is not None and job.per_run > count:
            raise UsageError(
                f"{job.experiment}: one run is planned on {job.per_run} × {job.accelerator}, and"  # noqa: RUF001
                f" there are {count}.",
                fix=f"name at least {job.per_run} under `have` (or with --have), or hold its plan"
                " to what there is with `nodes`, `max_nodes` or `accelerator` in the project file.",
            )


def _times(case: _Case) -> list[JobTimes]:
    order = sorted(range(len(case.jobs)), key=lambda number: case.placed[number].begin_h)
    return [_times_of(case, number) for number in order]


def _times_of(case: _Case, number: int) -> JobTimes:
    job, free, one = case.jobs[number], case.wanted[number], case.placed[number]
    return JobTimes(
        name=job.name,
        experiment=job.experiment,
        accelerator=job.accelerator,
        accelerators_wanted=free.accelerators,
        accelerators=one.accelerators,
        wanted_begin=case.day(free.begin_h),
        wanted_end=case.day(free.end_h),
        begin=case.day(one.begin_h),
        end=case.day(one.end_h),
        slips_days=max(0.0, one.end_h - free.end_h) / HOURS_PER_DAY,
        priority=job.priority,
        cannot_start=case.never_start.get(number),
    )


def _quota(case: _Case, quota: QuotaLimit, today: date | None) -> QuotaNeed:
    wanted = wanted_of(quota, case.jobs, case.wanted)
    short_from = None if wanted.short_from_h is None else case.day(wanted.short_from_h)
    return QuotaNeed(
        provider=quota.provider,
        region=quota.region,
        name=quota.name,
        code=quota.code,
        unit=quota.unit,
        accelerators=tuple(
            sorted({job.accelerator for job in case.jobs if job.sku in quota.per_node})
        ),
        limit=quota.limit,
        used=quota.used,
        free=quota.free,
        wanted=wanted.units,
        short_from=short_from,
        ask_by=None if short_from is None else ask_by(short_from, quota.answer_days, today),
        answer_days=quota.answer_days,
    )


def _needs(case: _Case, draws: Sequence[Sequence[Placed]]) -> Iterator[AcceleratorNeed]:
    """Yield what every month wants of each kind, with its range over the draws."""
    kinds = sorted({job.accelerator for job in case.jobs})
    last_h = max(_last_h(one) for one in (case.wanted, case.placed, *draws))
    month = case.project.start
    while hours_until(case.project.start, month) < last_h:
        for kind in kinds:
            need = _need(case, draws, month, kind)
            if need.peak or need.used or need.peak_high:
                yield need
        month = month.plus(1)


def _need(
    case: _Case, draws: Sequence[Sequence[Placed]], month: Month, kind: str
) -> AcceleratorNeed:
    first_h = hours_until(case.project.start, month)

    def within(placed: Sequence[Placed]) -> Use:
        return use_within(case.jobs, placed, kind, first_h, first_h + month.hours)

    likely, drawn = within(case.wanted), [within(one) for one in draws]
    mean_low, mean_high = ends([one.mean for one in drawn])
    peak_low, peak_high = ends([one.peak for one in drawn])
    have = case.have.get(kind)
    short = 0 if have is None else sum(one.peak > have for one in drawn)
    return AcceleratorNeed(
        month=month,
        accelerator=kind,
        mean=likely.mean,
        mean_low=mean_low,
        mean_high=mean_high,
        peak=likely.peak,
        peak_low=math.floor(peak_low),
        peak_high=math.ceil(peak_high),
        have=have,
        used=within(case.placed).mean,
        short_probability=short / len(drawn),
    )


def _shortages(case: _Case) -> Iterator[Shortage]:
    """Yield the kinds of which more are wanted at some moment than there are."""
    for kind, have in case.have.items():
        own = [number for number, job in enumerate(case.jobs) if job.accelerator == kind]
        wanted = [case.wanted[number] for number in own]
        placed = [case.placed[number] for number in own]
        moments = sorted({one.begin_h for one in wanted})
        using = {at_h: used_at(wanted, at_h) for at_h in moments}
        short = [at_h for at_h in moments if using[at_h] > have]
        if not short:
            continue
        hours = sum((one.end_h - one.begin_h) * one.accelerators for one in placed)
        span_h = _last_h(placed) - min(one.begin_h for one in placed)
        yield Shortage(
            accelerator=kind,
            have=have,
            wanted=max(using.values()),
            short_from=case.day(short[0]),
            utilisation=hours / (have * span_h),
        )


def _commitments(case: _Case, prices: Mapping[str, Prices]) -> Iterator[CommitmentMix]:
    """Yield the mixes of every type of machine that is rented, the cheapest first."""
    for one, known in _priced(case, prices):
        on_demand = on_demand_usd(one.uses, known, one.nodes)
        for mix in mixes(one.uses, known, one.nodes):
            yield CommitmentMix(
                machine=one.machine,
                accelerator=one.accelerator,
                term_years=float(mix.term_years),
                break_even_share=float(mix.break_even),
                committed=tuple(
                    CommittedNodes(begin=case.day(begin_h), nodes=count)
                    for begin_h, count in mix.committed
                ),
                used_share=mix.used,
                usd=mix.usd,
                on_demand_usd=on_demand,
            )


def _mixes(case: _Case, prices: Mapping[str, Prices]) -> Iterator[CheapestMix | str]:
    """Yield the cheapest mix of every type of machine that is rented; why it is not known."""
    for one, known in _priced(case, prices):
        mix = cheapest_mix(one.uses, known, one.nodes)
        if isinstance(mix, str):
            yield mix
            continue
        yield CheapestMix(
            machine=one.machine,
            accelerator=one.accelerator,
            committed=tuple(
                CommittedTerm(
                    begin=case.day(term.begin_h), term_years=float(term.years), nodes=term.nodes
                )
                for term in mix.committed
            ),
            used_share=mix.used,
            usd=mix.usd,
            one_length_usd=mixes(one.uses, known, one.nodes)[0].usd,
            on_demand_usd=on_demand_usd(one.uses, known, one.nodes),
        )


@dataclass(frozen=True)
class _Rented:
    """One type of machine that is rented on demand, and when how many of it are in use."""

    machine: str
    accelerator: str
    uses: Sequence[Placed]
    nodes: Sequence[int]


def _priced(case: _Case, prices: Mapping[str, Prices]) -> Iterator[tuple[_Rented, Prices]]:
    """Yield every type of machine that is rented, and for which a commitment has a price."""
    for machine, numbers in case.rented().items():
        if machine in prices:
            jobs, placed = case.jobs, case.placed
            found = _Rented(
                machine=machine,
                accelerator=jobs[numbers[0]].accelerator,
                uses=[placed[number] for number in numbers],
                nodes=[placed[number].at_once * jobs[number].nodes for number in numbers],
            )
            yield found, prices[machine]


def _last_h(placed: Sequence[Placed]) -> float:
    return max((one.end_h for one in placed), default=0.0)
