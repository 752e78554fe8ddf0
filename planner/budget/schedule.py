"""When the runs of a project begin and end: dependencies, start months, repetitions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...catalog.errors import UsageError
from ...catalog.units import HOURS_PER_YEAR
from .attempts import hours_expected
from .planned import PlannedRuns
from .project.months import Month, hours_until
from .project.project import Project
from .report.rows import OptionName

MONTHS_OF = {"month": 1, "quarter": 3, "year": 12}
WEEK_HOURS = 7 * 24
LONGEST_YEARS = 20
"""A plan that ends later is a mistake, and a yearly trend of prices would leave every number."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """One occurrence of planned runs, in hours from the begin of the project."""

    of: PlannedRuns
    begin_h: float
    end_h: float
    at_once: int
    """Runs that go on at the same time."""


def schedule(
    planned: Sequence[PlannedRuns], project: Project, option: OptionName | None = None
) -> list[Span]:
    """Return when the runs of a project take place, in the order of the project file.

    An experiment begins in its own first month and not before those it comes after have ended. Its
    settings are run one after another, so many runs of each at the same time as it says, and a
    repetition begins in its time, or when the one before has ended. Machines
    are taken to be there when they are wanted.

    Args:
        planned: every experiment's runs.
        project: the project; what comes after what goes in no circle.
        option: the plans that are taken; None: those the project asks for.
    """
    by_experiment: dict[str, list[PlannedRuns]] = {}
    for one in planned:
        by_experiment.setdefault(one.experiment, []).append(one)
    found: dict[str, list[Span]] = {}
    for name in in_order(project):
        found[name] = _spans(name, by_experiment.get(name, []), project, found, option)
    return [span for name in project.experiments for span in found[name]]


def too_late(spans: Iterable[Span]) -> Span | None:
    """Return the runs that end last, later than any plan may; None where all end in time."""
    last = max(spans, key=lambda one: one.end_h, default=None)
    return last if last is not None and last.end_h > LONGEST_YEARS * HOURS_PER_YEAR else None


def refuse_too_late(spans: Iterable[Span]) -> None:
    """Refuse a plan whose runs end later than any may.

    Raises:
        UsageError: some do; says which.
    """
    late = too_late(spans)
    if late is None:
        return
    years = late.end_h / HOURS_PER_YEAR
    raise UsageError(
        f"{late.of.name} would end {years:,.0f} years after the start of the project; at most"
        f" {LONGEST_YEARS} are planned.",
        fix="give it more runs at a time with `parallel`, fewer runs, or a faster machine.",
    )


def duration_h(one: PlannedRuns, option: OptionName | None = None) -> float:
    """Return the likely hours of one occurrence, whose runs go on in waves."""
    waves = math.ceil(one.runs / one.spec.parallel)
    return waves * hours_expected(one, option) / one.runs


def _spans(
    name: str,
    planned: Iterable[PlannedRuns],
    project: Project,
    before: Mapping[str, list[Span]],
    option: OptionName | None,
) -> list[Span]:
    spec = project.experiments[name]
    first_h = hours_until(project.start, spec.start or project.start)
    first_h = max([first_h, *(span.end_h for one in spec.after for span in before[one])])
    planned = list(planned)
    spans: list[Span] = []
    at_h = first_h
    for occurrence in range(spec.times):
        at_h = max(at_h, later_h(project.start, first_h, spec.every, occurrence))
        for one in planned:
            end_h = at_h + duration_h(one, option)
            at_once = min(one.runs, spec.parallel)
            spans.append(Span(of=one, begin_h=at_h, end_h=end_h, at_once=at_once))
            at_h = end_h
    return spans


def later_h(start: Month, first_h: float, every: str | None, occurrence: int) -> float:
    """Return the begin of an occurrence, hours from the begin of the project."""
    if every is None or occurrence == 0:
        return first_h
    if every == "week":
        return first_h + occurrence * WEEK_HOURS
    month = month_at(start, first_h)
    into_h = first_h - hours_until(start, month)
    return hours_until(start, month.plus(occurrence * MONTHS_OF[every])) + into_h


def month_at(start: Month, hours: float) -> Month:
    """Return the month that a time falls into, in hours from the begin of `start`."""
    month = start
    while hours_until(start, month.plus(1)) <= hours:
        month = month.plus(1)
    return month


def in_order(project: Project) -> list[str]:
    """Return the experiments so that each stands behind those it comes after."""
    left = {name: set(one.after) for name, one in project.experiments.items()}
    order: list[str] = []
    while left:
        free = [name for name, before in left.items() if before <= set(order)]
        assert free, "experiments wait for each other"
        order += free
        left = {name: before for name, before in left.items() if name not in free}
    return order
