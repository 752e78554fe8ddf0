"""Accelerators over time: those that are wanted, and when runs go on with those that there are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from ....planner.budget.report.capacity_rows import (
    AcceleratorNeed,
    CapacityOverTime,
    CommittedTerm,
    JobTimes,
)
from ....planner.budget.report.report import BudgetReport
from ....planner.budget.report.rows import AcceleratorUse
from .charts.drawing import (
    BAND,
    COLOURS,
    INK,
    LIMIT,
    Spec,
    coloured,
    drawn,
    framed,
    month_axis,
    name_axis,
    time_axis,
)
from .figures import clean
from .tables.tables import Column, Table, without_empty

MOST_TIMES = 80
"""Sets of runs in the chart: those that end latest against what is wanted."""


def accelerators_table(report: BudgetReport) -> Table:
    """Return how many accelerators of each type a month wants, and what there is of them."""
    table = Table(
        id="accelerators",
        caption="Accelerators that are needed, by month and type",
        columns=(
            Column("Month", "month"),
            Column("Accelerator"),
            Column("Accelerator-hours", "number", adds=True),
            Column("Most at one time", "count"),
            Column("Likely at least", "count", may_be_absent=True),
            Column("Likely at most", "count", may_be_absent=True),
            Column("On average", "number"),
            Column("There are", "count", may_be_absent=True),
            Column("Used of them", "number", may_be_absent=True),
            Column("Chance of too few", "share", may_be_absent=True),
        ),
        rows=tuple(
            (
                month,
                accelerator,
                0.0 if use is None else use.hours,
                _peak(use, need),
                None if need is None else need.peak_low,
                None if need is None else need.peak_high,
                0.0 if use is None else use.mean,
                *_there(need),
            )
            for (month, accelerator), (use, need) in _by_month(report).items()
        ),
        has_total=True,
    )
    return without_empty(table)


def accelerators(report: BudgetReport) -> Spec | None:
    """Return the most accelerators at one time of each month, the types side by side.

    They are not stacked: types may be busy at different times of a month.
    """
    wanted = _by_month(report)
    hours: dict[str, float] = {}
    for (_, kind), (use, _) in wanted.items():
        hours[kind] = hours.get(kind, 0.0) + (0.0 if use is None else use.hours)
    names = sorted(hours, key=lambda name: -hours[name])[: len(COLOURS)]
    shown = {key: both for key, both in wanted.items() if key[1] in names}
    if not shown:
        return None
    months = [month for month, _ in wanted]
    place = {
        "x": month_axis(sorted({*months, *(row.name for row in report.by_month)})),
        "xOffset": {"field": "accelerator", "scale": {"domain": names}},
    }
    y = {"type": "quantitative", "title": "accelerators", "axis": {"tickCount": 5}}
    rows = [
        {"month": month, "accelerator": kind, "peak": _peak(use, need)}
        for (month, kind), (use, need) in shown.items()
    ]
    ranges = [
        {
            "month": month,
            "accelerator": kind,
            "low": need.peak_low,
            "high": need.peak_high,
            "have": need.have,
        }
        for (month, kind), (_, need) in shown.items()
        if need is not None
    ]
    layers = [
        drawn(
            {"type": "bar"},
            {**place, "y": {**y, "field": "peak"}, "color": coloured("accelerator", names)},
            rows,
        ),
        drawn(
            {"type": "rule", "color": INK},
            {**place, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
            [row for row in ranges if row["low"] != row["high"]],
        ),
        drawn(
            {"type": "tick", "thickness": 3, "color": LIMIT, "opacity": 1},
            {**place, "y": {**y, "field": "have"}},
            [row for row in ranges if row["have"] is not None],
        ),
    ]
    return framed({"layer": [one for one in layers if one["data"]["values"]], "height": 180})


def intro(report: BudgetReport) -> str:
    """Return what the project's accelerators mean for its runs, and how their order was found."""
    found = _scarce(report)
    if found is None:
        return ""
    return (
        f"{clean(found.headline)} The order of the runs is {found.how}. The sums of this report are"
        " those of a project with all machines that it wants."
    )


def times_table(report: BudgetReport) -> Table:
    """Return when each set of runs goes on with the accelerators that there are."""
    found = _scarce(report)
    return Table(
        id="capacity",
        caption="When each set of runs goes on with the accelerators that there are",
        columns=(
            Column("Runs", is_name=True),
            Column("Accelerator"),
            Column("At the same time", "count"),
            Column("Wanted", "count"),
            Column("Begins"),
            Column("Ends"),
            Column("Wanted until"),
            Column("Days late", "number"),
        ),
        rows=tuple(
            (
                one.name,
                one.accelerator,
                one.accelerators,
                one.accelerators_wanted,
                one.begin,
                one.end,
                one.wanted_end,
                one.slips_days,
            )
            for one in (() if found is None else found.jobs)
        ),
    )


def times(report: BudgetReport) -> Spec | None:
    """Return when each set of runs waits and goes on, with the accelerators that there are."""
    found = _scarce(report)
    if found is None:
        return None
    latest = sorted(found.jobs, key=lambda one: -one.slips_days)[:MOST_TIMES]
    jobs = [one for one in found.jobs if one in latest]
    encoding = {
        "y": name_axis("name", [clean(one.name) for one in jobs]),
        **time_axis((found.end - found.start).days),
    }
    layers = [
        drawn({"type": "bar", "height": {"band": 0.3}, "color": BAND}, encoding, _waits(jobs)),
        drawn({"type": "bar", "height": {"band": 0.7}, "color": COLOURS[0]}, encoding, _runs(jobs)),
    ]
    return framed(
        {"layer": [one for one in layers if one["data"]["values"]], "height": {"step": 16}}
    )


def commitments_table(report: BudgetReport) -> Table:
    """Return which nodes are worth a commitment, for machines that are rented on demand."""
    found = report.capacity
    return Table(
        id="commitments",
        caption="Nodes that are worth a commitment, with the cheapest mix of each term",
        columns=(
            Column("Rented", is_name=True),
            Column("Years of a term", "number"),
            Column("Nodes committed", is_name=True),
            Column("Pays above a use of", "share"),
            Column("Used", "share"),
            Column("US dollars with it", "usd"),
            Column("US dollars on demand", "usd"),
        ),
        rows=tuple(
            (
                one.machine,
                one.term_years,
                ", ".join(f"{each.nodes} from {each.begin}" for each in one.committed) or "none",
                one.break_even_share,
                one.used_share,
                one.usd,
                one.on_demand_usd,
            )
            for one in (() if found is None else found.commitments)
        ),
    )


def mixes_table(report: BudgetReport) -> Table:
    """Return the cheapest mix of terms of all lengths, for machines that are rented on demand."""
    found = report.capacity
    return Table(
        id="mixes",
        caption="The same with terms of all lengths together, each begun when it pays",
        columns=(
            Column("Rented", is_name=True),
            Column("Nodes committed", is_name=True),
            Column("Used", "share", may_be_absent=True),
            Column("US dollars with it", "usd"),
            Column("US dollars with one length", "usd"),
            Column("US dollars on demand", "usd"),
        ),
        rows=tuple(
            (
                one.machine,
                ", ".join(_term(each) for each in one.committed) or "none",
                one.used_share,
                one.usd,
                one.one_length_usd,
                one.on_demand_usd,
            )
            for one in (() if found is None else found.mixes)
        ),
    )


def _term(one: CommittedTerm) -> str:
    years = f"{one.term_years:g} year{'' if one.term_years == 1 else 's'}"
    return f"{one.nodes} for {years} from {one.begin}"


def _scarce(report: BudgetReport) -> CapacityOverTime | None:
    """Return the times of a project that says how many accelerators there are."""
    return report.capacity if report.capacity is not None and report.capacity.have else None


def _by_month(
    report: BudgetReport,
) -> dict[tuple[str, str], tuple[AcceleratorUse | None, AcceleratorNeed | None]]:
    """Return what each month and type has of hours and of needs, in the order of time."""
    uses = {(str(one.month), one.accelerator): one for one in report.accelerators}
    found = report.capacity
    needs = {
        (str(one.month), one.accelerator): one for one in (() if found is None else found.needs)
    }
    return {key: (uses.get(key), needs.get(key)) for key in sorted({*uses, *needs})}


def _peak(use: AcceleratorUse | None, need: AcceleratorNeed | None) -> int:
    if need is not None:
        return need.peak
    return 0 if use is None else use.peak


def _there(need: AcceleratorNeed | None) -> tuple[int | None, float | None, float | None]:
    if need is None or need.have is None:
        return None, None, None
    return need.have, need.used, need.short_probability


def _waits(jobs: Sequence[JobTimes]) -> list[dict[str, str]]:
    return [
        {
            "name": clean(one.name),
            "begin": one.wanted_begin.isoformat(),
            "end": one.begin.isoformat(),
        }
        for one in jobs
        if one.wanted_begin < one.begin
    ]


def _runs(jobs: Sequence[JobTimes]) -> list[dict[str, str]]:
    return [
        {"name": clean(one.name), "begin": one.begin.isoformat(), "end": _after(one).isoformat()}
        for one in jobs
    ]


def _after(one: JobTimes) -> date:
    """Return its end; what takes hours is a day, so that it can be seen."""
    return max(one.end, one.begin + timedelta(days=1))
