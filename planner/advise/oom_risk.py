"""Which changes run out of memory too probably, and which take such a risk away from today's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..plan.plan import Plan
from .answer import Change
from .time_and_cost import cost_of, time_of
from .today.setting import fits
from .wording import ENDS_RISK

LEAST_RISK = 0.001
"""A smaller chance of running out of memory is not told."""


def accepted_risk(today: Plan, max_oom: float) -> float:
    """Return the largest chance of running out of memory with which no change comes later for it.

    No smaller than today's: a change that does not raise it is no worse for it.

    Args:
        today: today's plan.
        max_oom: the largest chance that is wanted.
    """
    return max(max_oom, today.p_oom or 0.0) if fits(today) else max_oom


def ends_risk(plan: Plan, today: Plan, max_oom: float) -> bool:
    """Return whether today's setting fits with a larger chance than is wanted, and a plan not."""
    if not fits(today) or (today.p_oom or 0.0) <= max_oom:
        return False
    return fits(plan) and (plan.p_oom or 0.0) <= max_oom


def risk_texts(plan: Plan, today: Plan) -> Iterator[str]:
    """Yield with what chance a plan runs out of memory, where it fits, and today's beside it."""
    if plan.p_oom is None or plan.p_oom < LEAST_RISK or not fits(plan):
        return
    text = f"it runs out of memory with a chance of {_percent(plan.p_oom)}"
    if fits(today) and today.p_oom is not None and today.p_oom >= LEAST_RISK:
        text += f" (today's setting: {_percent(today.p_oom)})"
    yield text


def risk_notes(today: Plan, changes: Sequence[Change], max_oom: float) -> Iterator[str]:
    """Yield that today's setting is risky, with the cheapest change here that ends that.

    Args:
        today: today's plan.
        changes: all of them.
        max_oom: the largest chance that is wanted.
    """
    if not fits(today) or (today.p_oom or 0.0) <= max_oom:
        return
    said = (
        f"today's setting runs out of memory with a chance of {_percent(today.p_oom or 0.0)},"
        f" more than the {max_oom * 100:g} % that is accepted"
    )
    ways = [one for one in changes if one.ends_oom_risk and one.kind != "machine"]
    if not ways:
        yield f"{said}; no single change on this machine ends that"
        return
    way = min(ways, key=_price)
    gain = way.gain.removesuffix(f", {ENDS_RISK}")
    yield f"{said}; the cheapest change that ends that: {way.text} ({gain})"


def _price(change: Change) -> tuple[bool, float, float]:
    """Return what orders changes by what they cost: first whether the loss may end elsewhere."""
    cost = cost_of(change.plan)
    usd = float("inf") if cost is None else cost.value
    return change.alters_training, usd, time_of(change.plan).value


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")
