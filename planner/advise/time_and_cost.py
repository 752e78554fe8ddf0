"""Time and cost of a plan with their intervals, and whether two of them can be told apart."""

from __future__ import annotations

from dataclasses import dataclass

from ..plan.plan import Plan

LEAST_GAIN = 0.02
"""A smaller change of time or cost is not told from none."""
MOST_OVERLAP = 0.9
"""Nor is one whose interval shares more than this of the shorter of both."""


@dataclass(frozen=True)
class Span:
    """A quantity with its 80 % interval."""

    value: float
    low: float
    high: float

    def saved_share(self, after: Span) -> float:
        """Return what of this is saved by another value; negative where it is larger."""
        return 1 - after.value / self.value

    def differs(self, after: Span) -> bool:
        """Return whether the difference to another value can be told."""
        if abs(self.saved_share(after)) < LEAST_GAIN:
            return False
        shared = min(self.high, after.high) - max(self.low, after.low)
        shorter = min(self.high - self.low, after.high - after.low)
        return shorter <= 0 or shared / shorter < MOST_OVERLAP


def time_of(plan: Plan) -> Span:
    """Return the hours of the whole job, or seconds of a sample without an amount of work."""
    job = plan.whole_job
    if job is not None:
        return Span(job.hours, job.hours_low, job.hours_high)
    step = plan.step_time_s
    return Span(*(one / plan.global_batch for one in (step.value, step.low, step.high)))


def cost_of(plan: Plan) -> Span | None:
    """Return the dollars of the whole job, or of a sample; None where no price is known."""
    job = plan.whole_job
    if job is not None:
        if job.usd is None or job.usd_low is None or job.usd_high is None or not job.usd:
            return None
        ends = (job.usd, job.usd_low, job.usd_high)
        return Span(*(float(usd + job.beside_usd) for usd in ends))
    if not plan.usd_per_hour:
        return None
    time_s = time_of(plan)
    return Span(*(one * plan.usd_per_hour for one in (time_s.value, time_s.low, time_s.high)))
