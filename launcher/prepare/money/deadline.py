"""A deadline: spot machines while there is time for a preemption, then on-demand. Pure.

A launch begins on spot machines where deadline - now ≥ 2 × the slowest start + the slowest
training. While it runs, the guard on its machines decides by the same rule
(guard/decisions/handover.py).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ....catalog.snapshot import Catalogue
from ....planner.plan.plan import Plan
from ...guard.decisions.handover import RESTARTS
from ...skypilot.placement import Place
from ..plan_choice import tried
from ..request import LaunchRequest
from ..task.guard_config import restart_s, total_steps


def bought_in_time(
    plan: Plan, request: LaunchRequest, *, now: datetime, slower: float = 1.0
) -> tuple[LaunchRequest, tuple[str, ...]]:
    """Return a request that meets its deadline despite a preemption, and notes for the user.

    Args:
        plan: for its steps and their time.
        request: as the user asks for it.
        now: when it is launched, with its time zone or in local time.
        slower: what the run takes for every second of its steps.
    """
    steps = total_steps(plan, request)
    if request.deadline is None or steps is None or not request.buys_spot(plan):
        return request, ()
    left_s = (request.deadline.astimezone() - now.astimezone()).total_seconds()
    if left_s >= RESTARTS * restart_s() + steps * plan.step_time_s.high * slower:
        return request, ()
    return replace(request, spot=False), (
        "machines are bought on demand: until the deadline there is no time for spot machines to be"
        f" taken away (up to {RESTARTS * restart_s() / 60:.0f} minutes to start again)",
    )


def fallback(plan: Plan, request: LaunchRequest, catalogue: Catalogue) -> tuple[Place, ...]:
    """Return where machines are bought on demand, so that a deadline does not wait for spot.

    Raises:
        PriceError: a price is not known.
    """
    if request.deadline is None or not request.buys_spot(plan):
        return ()
    return tried(plan, replace(request, spot=False), catalogue)
