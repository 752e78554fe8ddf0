"""How long the runs of a project take together: failed, early-ended and development runs counted.

One way of counting for the bill and for the clock: every attempt begins with a whole start, and
what failed or was ended early has done a part of the work.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..cost.beside_machines.beside import IDLE_TAIL
from ..cost.beside_machines.dataset_cost import MOVED
from .planned import PlannedRuns, RunCostOf
from .report.rows import OptionName

OF_EACH_ATTEMPT = (IDLE_TAIL, MOVED)
"""Lines that cost the same of a run that fails or ends early as of a whole one."""
ROUNDED_UP = "billing increment"
"""The line of what a seller bills beyond what ran."""


@dataclass(frozen=True, kw_only=True)
class RunHours:
    """Hours of one whole run: billed instance-hours of all its nodes, or hours of the clock."""

    start_h: float
    work_h: float
    """After the start, with evaluation, checkpoints and failures of machines."""
    training_h: float
    """Of the work, what trains."""


def billed_hours(cost: RunCostOf) -> RunHours:
    """Return the instance-hours of a run that are billed."""
    start_h = cost.hours_of("start-up")
    return RunHours(
        start_h=start_h,
        work_h=cost.instance_hours - start_h,
        training_h=cost.hours_of("accelerators"),
    )


def clock_hours(cost: RunCostOf) -> RunHours:
    """Return the hours from a run's request to its end, what a seller rounds up left out.

    Of a run without a price no line says which hours are its start: all count as training.
    """
    start_h = min(cost.hours_of("start-up", but=ROUNDED_UP) / cost.nodes, cost.hours)
    training_h = cost.hours_of("accelerators") / cost.nodes if cost.lines else cost.hours
    return RunHours(start_h=start_h, work_h=cost.hours - start_h, training_h=training_h)


def again_hours(one: PlannedRuns, run: RunHours) -> float:
    """Return the hours of the failed attempts of one occurrence of runs, each with its start."""
    return one.runs * one.repeated * (one.progress_at_failure * run.work_h + run.start_h)


def evaluation_hours(one: PlannedRuns, run: RunHours) -> float:
    """Return the hours of evaluation of one occurrence, which the project asks for beside."""
    return one.runs * one.spec.eval * one.work_share * run.training_h


def hours_expected(one: PlannedRuns, option: OptionName | None = None) -> float:
    """Return the hours that one occurrence takes one run at a time, every attempt counted."""
    run = clock_hours(one.chosen(option))
    tried_h = one.runs * (run.start_h + one.work_share * run.work_h)
    tried_h += again_hours(one, run) + evaluation_hours(one, run)
    return tried_h * (1 + one.spec.development)


def runs_expected(one: PlannedRuns, option: OptionName | None = None) -> float:
    """Return how many whole runs take as many hours as one occurrence, every attempt counted."""
    hours = one.chosen(option).hours
    return hours_expected(one, option) / hours if hours else float(one.runs)


def times_paid(one: PlannedRuns, line: str, option: OptionName | None = None) -> float:
    """Return how often a line beside the machines of a run is paid in one occurrence.

    Disks and the like are there while machines are; an idle tail is of every attempt, however long
    it is.
    """
    if line in OF_EACH_ATTEMPT:
        return one.runs * (1 + one.repeated) * (1 + one.spec.development)
    return runs_expected(one, option)
