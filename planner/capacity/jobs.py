"""A project's runs as jobs: how many accelerators for how long, from when, after which others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..budget.attempts import hours_expected
from ..budget.planned import RunCostOf
from ..budget.project.months import hours_until
from ..budget.project.project import Project
from ..budget.schedule import Span, in_order, later_h

BY_THE_HOUR = ("on-demand", "spot", "owned")
"""Ways of paying that `sku` ends with; those of a term have its years behind them."""
SHARES_AT_ONCE = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Of the runs that may go on together: what is tried where accelerators are scarce."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One occurrence of an experiment's runs of one setting; hours from the project's begin."""

    name: str
    """As the report calls the runs, with the number of the occurrence where there are several."""
    experiment: str
    accelerator: str
    per_run: int
    """Accelerators of one run."""
    runs: int
    parallel: int
    """Runs that may go on at the same time."""
    run_h: float
    """Likely hours of one run, repeated and early-ended ones counted."""
    shortest: float
    longest: float
    """The ends of the 80 % interval of a run's hours, as shares of the likely ones."""
    earliest_h: float
    """It begins no earlier, whatever it comes after."""
    after: tuple[int, ...]
    """Numbers of the jobs that end before it begins; all are smaller than its own."""
    machine: str | None = None
    """Seller, region and type that its plan rents on demand; None for one bought otherwise."""
    sku: str = ""
    """Seller, region, type and how it is bought: what a quota counts."""
    nodes: int = 1
    """Of one run."""
    priority: int = 1
    """What an hour that it ends later counts, beside those of others."""
    quotas: tuple[tuple[str, int], ...] = ()
    """Quotas that count it beside its accelerators, each with the units that one run takes."""

    @property
    def takes(self) -> tuple[tuple[str, int], ...]:
        """What one run takes of what there may be too little of: accelerators, units of quotas."""
        return ((self.accelerator, self.per_run), *self.quotas)

    @property
    def wanted_at_once(self) -> int:
        """How many runs go on together where there are machines enough: no more than shorten it."""
        return self._least(min(self.runs, self.parallel))

    def at_once(self, have: Mapping[str, int]) -> tuple[int, ...]:
        """Return how many runs may go on together with what there is, most first.

        All of them, or some if others then need not wait; of counts that take as many waves only
        the least.

        Args:
            have: what there is by name; of what it does not name as much as is wanted.
        """
        scarce = [have[name] // each for name, each in self.takes if name in have]
        if not scarce:
            return (self.wanted_at_once,)
        most = min(self.wanted_at_once, *scarce)
        tried = {max(1, round(most * share)) for share in SHARES_AT_ONCE}
        return tuple(sorted({self._least(one) for one in tried}, reverse=True))

    def _least(self, at_once: int) -> int:
        """Return the fewest runs at once that take no more waves than so many."""
        return math.ceil(self.runs / math.ceil(self.runs / at_once))

    def hours(self, at_once: int) -> float:
        """Return how long it takes with so many runs at once: they go on in waves."""
        return math.ceil(self.runs / at_once) * self.run_h


def jobs_of(spans: Sequence[Span], project: Project) -> list[Job]:
    """Return the jobs of a project, each behind those that it comes after.

    The settings of an experiment follow one another, and so do its repetitions, which keep their
    place in the calendar also where the first began late.

    Args:
        spans: what `budget.schedule.schedule` returned, machines being there when they are wanted.
        project: of the spans.
    """
    grouped: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda one: one.begin_h):
        grouped.setdefault(span.of.experiment, []).append(span)
    found: list[Job] = []
    last: dict[str, int] = {}
    for name in (one for one in in_order(project) if one in grouped):
        spec, own = project.experiments[name], grouped[name]
        settings = len(own) // spec.times
        before = tuple(last[one] for one in spec.after if one in last)
        for number, span in enumerate(own):
            turn, setting = divmod(number, settings)
            own_h = hours_until(project.start, spec.start or project.start)
            if turn:
                own_h = later_h(project.start, own[0].begin_h, spec.every, turn)
            found.append(_job(span, before, own_h if not setting else 0.0, turn))
            before = (len(found) - 1,)
        last[name] = len(found) - 1
    return found


def machine_of(cost: RunCostOf) -> str | None:
    """Return the name of the machines that a run rents on demand; None of others."""
    return place_of(cost) if cost.sku.endswith(" on-demand") else None


def place_of(cost: RunCostOf) -> str:
    """Return seller, region and type of a run's machines: rented by the hour, or the user's own."""
    kind = cost.sku
    for way in BY_THE_HOUR:
        kind = kind.removesuffix(f" {way}")
    return " ".join(filter(None, (cost.provider, cost.region, kind)))


def _job(span: Span, after: tuple[int, ...], earliest_h: float, turn: int) -> Job:
    one = span.of
    cost = one.chosen()
    return Job(
        name=one.name if one.spec.times == 1 else f"{one.name} #{turn + 1}",
        experiment=one.experiment,
        accelerator=cost.accelerator,
        per_run=cost.accelerators,
        runs=one.runs,
        parallel=one.spec.parallel,
        run_h=hours_expected(one) / one.runs,
        shortest=cost.hours_low / cost.hours if cost.hours else 1.0,
        longest=cost.hours_high / cost.hours if cost.hours else 1.0,
        earliest_h=earliest_h,
        after=after,
        machine=machine_of(cost),
        sku=" ".join(filter(None, (cost.provider, cost.region, cost.sku))),
        nodes=cost.nodes,
        priority=one.spec.priority,
    )
