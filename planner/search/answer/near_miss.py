"""The plan that comes nearest to a recommendation where there is none, and what it would need."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....catalog.types import CPU_PREFIX
from ...plan.answer.answer_parts import NearMiss, Recommended
from ...plan.plan import Plan
from ...plan.question import Money
from .recommended import MOST_HOURS, cost_of, weight

MOST_RISK_PROPOSED = 0.25
"""Chance of running out of memory from which it is not proposed to accept it. A judgement."""
LEEWAY = 1.2
"""A deadline is proposed so much later than the likely end."""


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """A rule of what is sensible that a plan breaks."""

    text: str
    """What the plan does: "has a 3 % chance of running out of memory"."""
    option: str | None = None
    """What to give so that the rule lets it pass; None where nothing does."""


def near_miss(
    plans: Sequence[Plan], best: Recommended | None, money: Money, *, only_runnable: bool
) -> NearMiss | None:
    """Return the nearest plan where none is recommended, or none that gpuplan runs.

    None where one is, where no amount of work was given, and where a recommended plan that gpuplan
    cannot run has no other beside it that could take its place.

    Args:
        plans: finished plans, in order.
        best: what is recommended of them.
        money: limits that were given, and the risk of running out of memory that is accepted.
        only_runnable: whether only plans were asked for that gpuplan runs.
    """
    worked = [one for one in plans if one.run is not None]
    if best is None:
        usual = [one for one in worked if not one.offer.accelerator.startswith(CPU_PREFIX)]
        return _nearest(usual or worked, money, given=())
    chosen = next(one for one in plans if one.id == best.id)
    if chosen.runnable is not False:
        return None
    given = () if only_runnable else ("--runnable",)
    others = [one for one in worked if one.runnable and not one.stands_apart]
    found = _nearest(others, money, given=given)
    return None if found is None or found.options is None else found


def _nearest(plans: Sequence[Plan], money: Money, *, given: tuple[str, ...]) -> NearMiss | None:
    if not plans:
        return None
    met = {one.id: list(obstacles(one, money)) for one in plans}

    def key(plan: Plan) -> tuple[float, ...]:
        found = met[plan.id]
        stuck = any(one.option is None for one in found)
        return stuck, len(found), plan.p_oom or 0.0, weight(plan, money), plan.position

    plan = min(plans, key=key)
    found = met[plan.id]
    options = [*given, *(one.option for one in found if one.option is not None)]
    is_open = bool(options) and all(one.option is not None for one in found)
    texts = [one.text for one in found] or ["is run by gpuplan"]
    reason = " and ".join(texts)
    wanted = " ".join(options) if is_open else None
    return NearMiss(
        id=plan.id,
        reason=reason if wanted is None else f"{reason}: give {wanted}",
        options=wanted,
    )


def obstacles(plan: Plan, money: Money) -> Iterator[Obstacle]:
    """Yield what keeps a plan from being sensible, whatever the others are (`sensible`)."""
    if plan.needs_port:
        yield Obstacle(text="runs the file only after a port")
    elif plan.stands_apart:
        yield Obstacle(text="needs torch built from source")
    elif plan.needs_build == "older":
        yield Obstacle(text="needs an older release of torch")
    if plan.offer.accelerator.startswith(CPU_PREFIX):
        yield Obstacle(text="computes on host processors alone")
    if plan.p_oom is not None and plan.p_oom > money.max_oom:
        yield _of_memory(plan.p_oom, money.max_oom)
    if cost_of(plan) is None:
        yield Obstacle(text="has no known price")
    hours = 0.0 if plan.whole_job is None else plan.whole_job.hours
    if money.deadline_s is None and hours > MOST_HOURS:
        yield Obstacle(
            text=f"takes {hours / 24:.0f} days, more than {MOST_HOURS / 24:.0f} without a deadline",
            option=f"--deadline {math.ceil(LEEWAY * hours / 24)}d",
        )


def _of_memory(p_oom: float, max_oom: float) -> Obstacle:
    # Rounded up, so that a chance that is over the limit never reads as the limit itself.
    chance = f"{math.ceil(p_oom * 1000) / 10:g} %"
    text = f"has a {chance} chance of running out of memory, over the {max_oom * 100:g} % accepted"
    if p_oom > MOST_RISK_PROPOSED:
        return Obstacle(text=text)
    return Obstacle(text=text, option=f"--max-oom-risk {math.ceil(p_oom * 100) / 100:g}")
