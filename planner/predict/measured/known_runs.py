"""What was measured of the very plan that is predicted, in runs of one's own."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...plan.plan import Breakdown, Estimated, Plan
from ..predict import Prediction

BETWEEN_MACHINES = 0.08
"""Fraction of the step time, either way, by which devices of one kind differ on average in one job.
Sinha et al., "Not All GPUs Are Created Equal", arXiv:2208.11035v3, abstract (8 % on average, 22 %
at most, over five computing centres)."""


@dataclass(frozen=True, kw_only=True)
class KnownStep:
    """The step times of earlier runs of one plan, seconds, the newest run last."""

    times_s: tuple[float, ...]
    run: str
    """The newest."""

    @property
    def estimated(self) -> Estimated:
        """Return the median, as wide as machines of one kind or those runs differ."""
        middle = statistics.median(self.times_s)
        return Estimated(
            value=middle,
            low=min(middle * (1 - BETWEEN_MACHINES), *self.times_s),
            high=max(middle * (1 + BETWEEN_MACHINES), *self.times_s),
            basis="measured",
        )


KnownRuns = Mapping[str, KnownStep]
"""`run_key` of a plan → what was measured of it, for one model with its params."""


def run_key(plan: Plan) -> str:
    """Return what two plans of one model must share for the step of one to be the other's."""
    offer = plan.offer
    parts: Sequence[object] = (
        offer.accelerator,
        offer.instance_type,
        plan.nodes,
        plan.string,
        plan.optimizer,
    )
    return " | ".join(map(str, parts))


def as_measured(prediction: Prediction, known: KnownStep) -> Prediction:
    """Return a prediction with the step time that was measured, its parts in proportion."""
    step = known.estimated
    ratio = step.value / prediction.step_time_s.value
    parts = {
        name: None if seconds is None else seconds * ratio
        for name, seconds in prediction.breakdown_s
    }
    runs = "a run" if len(known.times_s) == 1 else f"{len(known.times_s)} runs"
    return replace(
        prediction,
        step_time_s=step,
        breakdown_s=Breakdown.model_validate(parts),
        mfu=None if prediction.mfu is None else prediction.mfu / ratio,
        hfu=None if prediction.hfu is None else prediction.hfu / ratio,
        bandwidth_share=(
            None if prediction.bandwidth_share is None else prediction.bandwidth_share / ratio
        ),
        notes=(*prediction.notes, f"the step time is that of {runs} of this plan ({known.run})"),
    )
