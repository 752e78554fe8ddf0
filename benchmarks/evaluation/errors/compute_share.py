"""Whether a step had the time for what it is predicted to compute: products and attention alone.

They ran inside the step that was measured, so that a prediction which needs longer for them is
impossible, whatever else it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuplan.api.validation import TimedRun
from gpuplan.planner.predict.step_time import step_parts
from gpuplan.planner.validation.errors import Observation

from ..tables import percent

PART = """\
Products and attention ran inside the step that was measured. Alone they are predicted to take
longer than all of it in {beyond} of {n} runs, by {most} at most, and at the low end of the 80 %
interval in {beyond_low}. They are predicted too slow as wholes, and most have little beside
products: an unbiased prediction of a step that only computes is above it half of the time."""


@dataclass(frozen=True, kw_only=True)
class ComputeShare:
    """What a run is predicted to compute, in the time that its whole step took."""

    id: str
    expected: float
    """Predicted time of products and attention ÷ measured time of the step."""
    low: float
    """The same at the low end of the 80 % interval."""


def compute_shares(
    timed: Iterable[TimedRun], observations: Iterable[Observation]
) -> list[ComputeShare]:
    """Return the shares of runs.

    Args:
        timed: the runs.
        observations: the same runs, for their intervals.
    """
    predicted = {seen.id: seen.predicted_step_time_s for seen in observations}
    shares: list[ComputeShare] = []
    for run in timed:
        step, parts = predicted[run.id], step_parts(run.cache, run.site, run.setup)
        assert step is not None
        expected = parts.compute_s.item() / run.measured_s
        shares.append(
            ComputeShare(id=run.id, expected=expected, low=expected * step.low / step.value)
        )
    return shares


def compute_part(shares: Sequence[ComputeShare]) -> str:
    """Return the paragraph of docs/accuracy.md."""
    if not shares:
        return ""
    return PART.format(
        n=f"{len(shares):,}",
        beyond=sum(one.expected > 1 for one in shares),
        beyond_low=sum(one.low > 1 for one in shares) or "none",
        most=percent(max(0.0, max(one.expected for one in shares) - 1), 0),
    )
