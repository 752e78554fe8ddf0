"""A plan with what is known of where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from ...planner.plan.answer.answer_parts import WorkloadFacts
from ...planner.plan.answer.estimate import Estimate
from ...planner.plan.plan import Plan
from .origin import Origin


@dataclass(frozen=True, kw_only=True)
class SourcedPlan:
    """A plan, the estimate that lists it, and what that was made from."""

    plan: Plan
    estimate: Estimate | None
    """The newest that lists the plan, where it is kept; None where a file holds the plan alone."""
    origin: Origin | None = None
    """What the plan was made from; None for a plan from a file or from a Profile alone."""

    @property
    def workload(self) -> WorkloadFacts | None:
        """Return what the plan trains, where that is known."""
        return None if self.estimate is None else self.estimate.workload
