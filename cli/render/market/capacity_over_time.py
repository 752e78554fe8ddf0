"""What a project wants of accelerators over time, as text, Markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from ....catalog.text.money import format_money
from ....planner.budget.report.capacity_rows import (
    AcceleratorNeed,
    CapacityOverTime,
    CheapestMix,
    CommitmentMix,
    CommittedTerm,
    JobTimes,
    QuotaNeed,
)
from ...terminal.output import Screen
from ..text.answer import UNKNOWN, to_csv, to_json, with_notes
from ..text.grid import Column, Grid

BAR = 28
"""Characters from the project's first day to its last."""
MOST_TERMS = 6
"""Of a mix of commitments; the JSON has all."""


def render_capacity_over_time(found: CapacityOverTime, form: str, screen: Screen) -> str:
    """Return the answer in one of the four forms; CSV holds the jobs."""
    if form == "json":
        return to_json(found)
    if form == "csv":
        return to_csv(JobTimes, found.jobs)
    jobs = with_notes(_jobs(found), [], form, screen)
    needs = with_notes(_needs(found), list(_notes(found)), form, screen)
    first = with_notes(Grid([], []), [found.headline], form, screen)
    parts = [first, jobs, needs]
    if found.quotas:
        parts.insert(2, with_notes(_quotas(found), list(_quota_notes(found)), form, screen))
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _jobs(found: CapacityOverTime) -> Grid:
    scarce = bool(found.have or found.quotas)
    columns = [
        Column("runs", shrink=True, key=True),
        Column("accelerators", shrink=True),
        *([Column("wanted until", from_width=90)] if scarce else []),
        Column("begins"),
        Column("ends"),
        *([Column("late", right=True)] if scarce else []),
        Column(_scale(found), from_width=110),
    ]
    rows = [
        [
            one.name,
            f"{one.accelerators} × {one.accelerator}",  # noqa: RUF001
            *([str(one.wanted_end)] if scarce else []),
            *_begin_and_end(one),
            *([_late(one.slips_days) if one.cannot_start is None else UNKNOWN] if scarce else []),
            _bar(one, found) if one.cannot_start is None else "",
        ]
        for one in found.jobs
    ]
    return Grid(columns, rows)


def _begin_and_end(one: JobTimes) -> list[str]:
    return [str(one.begin), str(one.end)] if one.cannot_start is None else ["never", "never"]


def _quotas(found: CapacityOverTime) -> Grid:
    columns = [
        Column("quota", shrink=True, key=True),
        Column("where"),
        Column("unit"),
        Column("limit", right=True),
        Column("in use", right=True),
        Column("wanted at once", right=True),
        Column("too little from"),
        Column("ask by"),
    ]
    return Grid(columns, [_quota(one) for one in found.quotas])


def _quota(one: QuotaNeed) -> list[str]:
    asked = UNKNOWN if one.ask_by is None else str(one.ask_by)
    return [
        one.name,
        f"{one.provider} {one.region}",
        one.unit,
        f"{one.limit:,.0f}",
        UNKNOWN if one.used is None else f"{one.used:,.0f}",
        f"{one.wanted:,}",
        "never" if one.short_from is None else str(one.short_from),
        "" if one.short_from is None else asked,
    ]


def _quota_notes(found: CapacityOverTime) -> Iterator[str]:
    """Yield what the quotas leave open: what asks for more, and what never starts without."""
    for one in found.jobs:
        if one.cannot_start is not None:
            yield f"{one.name} cannot start: {one.cannot_start}."
    silent = sorted({one.provider for one in found.quotas if one.short_from and not one.ask_by})
    if silent:
        yield (
            f"How long {' and '.join(silent)} takes to grant more is stated nowhere that was read:"
            " ask as early as you can."
        )
    unseen = (one for one in found.quotas if one.used is None)
    blind = [f"{one.name} in {one.provider} {one.region}" for one in unseen]
    if blind:
        yield (
            f"What runs now under {', '.join(blind)} is not known, so all of the limit is counted"
            " as free: look before you rely on it."
        )
    for one in found.quotas:
        if one.command is not None:
            days = "" if one.answer_days is None else f" (usually {one.answer_days} working days)"
            yield f"Ask {one.provider} for more{days}: {one.command}"
    yield (
        "What else runs in the account now is taken to go on. A quota is no promise of machines"
        " (gpuplan capacity PLAN-ID)."
    )


def _late(days: float) -> str:
    if days < 0.05:
        return "no"
    return f"{24 * days:.0f} h" if days < 1 else f"{days:.0f} d"


def _scale(found: CapacityOverTime) -> str:
    first, last = str(found.start), str(found.end)
    return first + " " * max(1, BAR - len(first) - len(last)) + last


def _bar(one: JobTimes, found: CapacityOverTime) -> str:
    """Return when it goes on: ░ while it waits for machines, █ while it runs."""
    at = [_place(day, found) for day in (one.wanted_begin, one.begin, one.end)]
    wanted, begin, end = at
    begin, end = min(begin, BAR - 1), max(min(begin, BAR - 1) + 1, end)
    waits = max(0, begin - min(wanted, begin))
    return " " * (begin - waits) + "░" * waits + "█" * (end - begin)


def _place(day: date, found: CapacityOverTime) -> int:
    days = max(1, (found.end - found.start).days)
    return round(BAR * (day - found.start).days / days)


def _needs(found: CapacityOverTime) -> Grid:
    scarce = bool(found.have)
    columns = [
        Column("month"),
        Column("accelerator", shrink=True, key=True),
        Column("wanted at once", right=True),
        Column("80 %", right=True),
        Column("on average", right=True),
        *([Column(name, right=True) for name in ("have", "used", "too few")] if scarce else []),
    ]
    return Grid(columns, [_need(one, scarce=scarce) for one in found.needs])


def _need(one: AcceleratorNeed, *, scarce: bool) -> list[str]:
    cells = [
        str(one.month),
        one.accelerator,
        str(one.peak),
        f"{one.peak_low}–{one.peak_high}",  # noqa: RUF001
        f"{one.mean:.1f}",
    ]
    if not scarce:
        return cells
    if one.have is None:
        return [*cells, "as wanted", f"{one.used:.1f}", "no"]
    return [*cells, str(one.have), f"{one.used:.1f}", f"{one.short_probability:.0%}"]


def _notes(found: CapacityOverTime) -> Iterator[str]:
    if found.have or found.quotas:
        yield f"Order of the runs: {found.how}."
    yield from _without_quota(found)
    for one in found.shortages:
        yield (
            f"{one.utilisation:.0%} of the {one.have} × {one.accelerator} are used"  # noqa: RUF001
            " from the first run to the last."
        )
    yield from _commitments(found)
    yield (
        f"Ranges: 80 % of {found.draws} draws of the runs' times. Machines that fail and runs that"
        " are begun again are in the times; waiting for a seller is not."
    )


def _without_quota(found: CapacityOverTime) -> Iterator[str]:
    """Yield why a quota is not known, each reason once with the machines that it is of."""
    machines: dict[str, list[str]] = {}
    for machine, why in found.quotas_unknown.items():
        machines.setdefault(why, []).append(machine)
    for why, names in machines.items():
        yield f"Quota of {', '.join(names)}: not known ({why}); it is taken to be enough."


def _commitments(found: CapacityOverTime) -> Iterator[str]:
    """Yield a line for each type of machine: the cheapest mix, or from where on one would pay."""
    cheapest: dict[str, CommitmentMix] = {}
    for one in found.commitments:
        cheapest.setdefault(one.machine, one)
    mixes = {one.machine: one for one in found.mixes if one.usd < one.one_length_usd}
    for machine, one in cheapest.items():
        if machine in mixes:
            yield _mix(mixes[machine])
            continue
        if one.committed:
            nodes = ", ".join(f"{each.nodes} from {each.begin}" for each in one.committed)
            yield (
                f"{machine}: {format_money(one.usd)} with nodes committed for {_years(one)}"
                f" ({nodes}; used {one.used_share:.0%} of it, and one pays from"
                f" {one.break_even_share:.0%} on), {format_money(one.on_demand_usd)} all on demand."
            )
            continue
        nearest = min(
            (other for other in found.commitments if other.machine == machine),
            key=lambda other: other.break_even_share - other.used_share,
        )
        yield (
            f"{machine}: {format_money(one.on_demand_usd)} on demand, and no commitment pays: no"
            f" node is used more than {nearest.used_share:.0%} of {_years(nearest)}, and one pays"
            f" from {nearest.break_even_share:.0%} on."
        )
    if found.mixes_unknown:
        yield f"A mix of commitments of several lengths may cost less: {found.mixes_unknown}."
    if found.uncommitted:
        yield f"{', '.join(found.uncommitted)}: the price of a commitment is not known."


def _mix(one: CheapestMix) -> str:
    terms = [f"{each.nodes} for {_years(each)} from {each.begin}" for each in one.committed]
    more = f" and {len(terms) - MOST_TERMS} more" if len(terms) > MOST_TERMS else ""
    usd, one_length, rented = map(format_money, (one.usd, one.one_length_usd, one.on_demand_usd))
    return (
        f"{one.machine}: {usd} with nodes committed ({', '.join(terms[:MOST_TERMS])}{more}; used"
        f" {one.used_share or 0:.0%} of it), {one_length} with terms of one length from the"
        f" project's begin on, {rented} all on demand."
    )


def _years(one: CommitmentMix | CommittedTerm) -> str:
    return f"{one.term_years:g} year{'' if one.term_years == 1 else 's'}"
