"""The order of a report: after its first page, sections with their tables and charts."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....planner.budget.report.report import BudgetReport
from . import capacity
from .tables import money_tables as money
from .tables import run_tables as runs
from .tables import spent_tables as spent
from .tables.burn_down import burn_down_table
from .tables.tables import Table
from .tables.way_tables import ways_table


@dataclass(frozen=True)
class Part:
    """A table, and the charts that show it, where there are any."""

    table: Table
    charts: tuple[str, ...] = ()
    """Names of charts of `charts`."""


@dataclass(frozen=True)
class Section:
    """A part of the report with a title of its own."""

    id: str
    title: str
    intro: str
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """Sentences that are shown as a list."""


def sections(report: BudgetReport) -> list[Section]:
    """Return what comes after the first page, without sections that have nothing to show."""
    found = [
        _moved(report),
        _by_month(report),
        _by_experiment(report),
        _who(report),
        _limits(report),
        _movers(report),
        _actual(report),
        _machines(report),
        _capacity(report),
        _ways(report),
        _plans(report),
        _lines(report),
        _basis(report),
    ]
    kept = [
        Section(
            one.id,
            one.title,
            one.intro,
            tuple(part for part in one.parts if part.table.rows),
            one.notes,
        )
        for one in found
    ]
    return [one for one in kept if one.parts or one.notes]


def _moved(report: BudgetReport) -> Section:
    return Section(
        "moved",
        "What moved since the earlier report",
        "" if report.moved is None else f"Compared with {report.moved.before.name}.",
        (Part(spent.moved_table(report)),),
    )


def _by_month(report: BudgetReport) -> Section:
    return Section(
        "by-month",
        "Cost by month",
        "What falls due in each month.",
        (Part(money.months_table(report), ("cost_by_month",)),),
    )


def _by_experiment(report: BudgetReport) -> Section:
    sums = money.sums_table(
        "by-experiment", "Cost by experiment", "Experiment", report.by_experiment
    )
    return Section(
        "experiments",
        "Experiments",
        "What each experiment costs, what it runs on, and when it runs.",
        (
            Part(sums),
            Part(runs.timeline_table(report), ("timeline",)),
            Part(runs.experiments_table(report)),
        ),
    )


def _who(report: BudgetReport) -> Section:
    return Section(
        "paid-for",
        "What is paid for, by whom and to whom",
        "The same cost, divided in three other ways.",
        (
            Part(money.budget_table(report), ("waterfall",)),
            Part(money.sums_table("by-owner", "Cost by owner", "Owner", report.by_owner)),
            Part(
                money.sums_table("by-provider", "Cost by provider", "Provider", report.by_provider)
            ),
        ),
    )


def _limits(report: BudgetReport) -> Section:
    return Section(
        "limits",
        "Limits and funding",
        "What may be spent at most, and where the money is from.",
        (Part(money.limits_table(report)), Part(money.funding_table(report))),
    )


def _movers(report: BudgetReport) -> Section:
    return Section(
        "movers",
        "What moves the total",
        "Each assumption from its low to its high end, with all others as they are.",
        (Part(money.sensitivities_table(report), ("tornado",)),),
    )


def _actual(report: BudgetReport) -> Section:
    return Section(
        "actual",
        "Planned against actual",
        "What is planned until the end of each month"
        + (", and what launches have cost so far." if report.spent else "; nothing has run yet."),
        (
            Part(burn_down_table(report), ("forecast", "remaining")),
            Part(spent.spent_table(report)),
            *([Part(spent.variance_table(report))] if report.variances else ()),
        ),
    )


def _machines(report: BudgetReport) -> Section:
    return Section(
        "accelerators",
        "Accelerators, energy and carbon",
        "How many accelerators are needed and when, and what electricity they take.",
        (
            Part(capacity.accelerators_table(report), ("accelerators",)),
            Part(runs.resources_table(report)),
        ),
    )


def _capacity(report: BudgetReport) -> Section:
    return Section(
        "capacity",
        "With the accelerators that there are",
        capacity.intro(report),
        (Part(capacity.times_table(report), ("capacity",)),),
    )


def _ways(report: BudgetReport) -> Section:
    return Section(
        "ways",
        "Rent, reserve or buy",
        "What is paid by the hour costs the same however much it is used; a term, or a machine of"
        " one's own, is paid in the hours without use too. None of it is in the sums.",
        (
            Part(ways_table(report)),
            Part(capacity.commitments_table(report)),
            Part(capacity.mixes_table(report)),
        ),
    )


def _plans(report: BudgetReport) -> Section:
    return Section(
        "plans",
        "Speed and memory",
        "For engineers: other ways to run each experiment, and what its time and memory go into.",
        (
            Part(runs.fronts_table(report), ("fronts",)),
            Part(runs.step_table(report), ("steps",)),
            Part(runs.memory_table(report), ("memory",)),
        ),
    )


def _lines(report: BudgetReport) -> Section:
    return Section(
        "lines",
        "Cost lines",
        "Every line of the cost. The rows of each month are in the CSV file and the workbook.",
        (Part(money.lines_table(report)),),
    )


def _basis(report: BudgetReport) -> Section:
    return Section(
        "assumptions",
        "Assumptions and their sources",
        "What the figures rest on.",
        (Part(money.assumptions_table(report)),),
    )
