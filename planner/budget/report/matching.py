"""Which experiment of a report a launch counts for, and how that was found.

A plan's id changes with its price, so a launch of the same plan at another price has another id.
The ways are tried in this order; where several experiments fit, the first two take the first of
them, and the others none.

plan        the launch has the id of the experiment's plan
workload    the same model files, params and inputs, on the same machines, laid out the same way
machines    a script of one's own, whose model is not known: the same machines and layout
model       the same model by its name, in a launch of the project; among several experiments, the
            one with its files and params
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .actual_rows import MatchedBy
from .rows import ExperimentRow


@dataclass(frozen=True, kw_only=True)
class Launched:
    """What tells what a launch was for; None where its record does not say it."""

    plan: str
    """Its id."""
    plan_key: str | None = None
    """`run_key` of its plan: machines and layout, without a price."""
    workload: str | None = None
    """Hash of the model's files, params and inputs."""
    model: str | None = None
    """Name of the model; None for a script of one's own."""
    is_of_project: bool = False
    """Whether it was launched for the project, by its file or its name."""


def matched(
    launched: Launched, experiments: Sequence[ExperimentRow]
) -> tuple[ExperimentRow, MatchedBy] | None:
    """Return the experiment that a launch counts for, and how it was found; None for none."""

    def those(fits: Callable[[ExperimentRow], bool]) -> list[ExperimentRow]:
        return [row for row in experiments if fits(row)]

    same = those(lambda row: row.plan_id == launched.plan)
    if same:
        return same[0], "plan"
    keyed = those(lambda row: row.plan_key is not None and row.plan_key == launched.plan_key)
    if launched.workload is not None:
        same = [row for row in keyed if row.workload == launched.workload]
        if same:
            return same[0], "workload"
    if not launched.is_of_project:
        return None
    if launched.model is None:
        return (keyed[0], "machines") if len(keyed) == 1 else None
    named = those(lambda row: row.model == launched.model)
    if len(named) > 1:
        named = [row for row in named if row.workload is not None]
        named = [row for row in named if row.workload == launched.workload]
    return (named[0], "model") if len(named) == 1 else None
