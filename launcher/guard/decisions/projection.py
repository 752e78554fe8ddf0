"""The total of a run again, once its first steps have been timed on the machines it runs on.

    step      = median of the last `steps` step times, the first `settled` of an attempt left out
    total_usd = spent once (total_steps - step_now) × step + tail have passed, + after
    alone_usd = spent in this attempt once (total_steps - steps of this attempt) × step + tail have,
                + after

`total_usd` is what will have been paid, interruptions included: it is held against the caps.
`alone_usd` is what the run costs where this attempt is all of it: it is held against the estimate,
which knows of no interruptions. In a first attempt the two are the same.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..orders import SECONDS_PER_HOUR, Orders, ProjectionOrders
from .spending import Account


@dataclass(frozen=True)
class Projected:
    """What the first steps say of the whole."""

    step: int
    """The step after which it was made."""
    step_time_s: float
    steps_left: int
    total_usd: float
    alone_usd: float
    hours: float
    """Total of all attempts."""
    expected_usd: float | None
    low_usd: float | None
    high_usd: float | None
    outcome: str
    """`within`, `above` or `below` what was estimated, or `above the cap`."""
    text: str
    """The comparison, in words for the user."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as the state file has it."""
        return asdict(self)


def project(
    orders: Orders,
    account: Account,
    *,
    paid_s: float,
    step: int,
    trained: int,
    times_s: Sequence[float],
) -> Projected:
    """Return the projection.

    Args:
        orders: with a projection.
        account: of this attempt.
        paid_s: since the attempt began to cost.
        step: steps that are done.
        trained: how many of them this attempt did.
        times_s: of the settled steps, at least one; the last ones count.
    """
    wanted = orders.projection
    assert wanted is not None
    step_s = statistics.median(times_s[-wanted.steps :])
    left = max(0, wanted.total_steps - step)
    left_s = left * step_s + orders.tail_s
    untrained_s = max(0, wanted.total_steps - trained) * step_s + orders.tail_s
    total_usd = account.spent_usd(paid_s + left_s) + orders.after_usd
    alone_usd = account.usd(paid_s + untrained_s) + orders.after_usd
    hours = account.hours(paid_s) + left_s / SECONDS_PER_HOUR
    outcome, text = _outcome(orders, wanted, total_usd=total_usd, alone_usd=alone_usd, hours=hours)
    return Projected(
        step=step,
        step_time_s=step_s,
        steps_left=left,
        total_usd=total_usd,
        alone_usd=alone_usd,
        hours=hours,
        expected_usd=wanted.expected_usd,
        low_usd=wanted.low_usd,
        high_usd=wanted.high_usd,
        outcome=outcome,
        text=f"By step {step}, a step takes {step_s:.3g} s, so {text}.",
    )


def _outcome(
    orders: Orders, wanted: ProjectionOrders, *, total_usd: float, alone_usd: float, hours: float
) -> tuple[str, str]:
    """Return how a projection compares, and the words for it."""
    costs = f"the run costs ${total_usd:,.2f} in all"
    if orders.max_cost_usd is not None and total_usd > orders.max_cost_usd:
        return "above the cap", f"{costs}, above the ${orders.max_cost_usd:,.2f} that are allowed"
    if orders.max_hours is not None and hours > orders.max_hours:
        takes = f"the run takes {hours:,.2f} hours in all"
        return "above the cap", f"{takes}, above the {orders.max_hours:g} that are allowed"
    low, high = wanted.low_usd, wanted.high_usd
    if low is None or high is None:
        return "within", costs
    if alone_usd != total_usd:
        costs = f"{costs} (${alone_usd:,.2f} without the attempts before)"
    said = f"the ${low:,.2f} to ${high:,.2f} of the estimate"
    if alone_usd > high:
        return "above", f"{costs}, above {said}"
    if alone_usd < low:
        return "below", f"{costs}, below {said}"
    return "within", f"{costs}, within {said}"
