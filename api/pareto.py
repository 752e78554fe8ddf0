"""Cost against time: the plans between the cheapest and the fastest, and scaling over nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..catalog.errors import UsageError
from ..catalog.types import CPU_PREFIX
from ..catalog.units import SECONDS_PER_HOUR
from ..planner.plan.answer.estimate import Estimate
from ..planner.plan.plan import Plan, WholeJob
from ..planner.plan.question import HIDDEN_ABOVE, Question
from ..planner.search.progress import Progress, untold
from .answers import estimate
from .models.inputs import Inputs


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """What waiting saves, and what more nodes bring."""

    plans: tuple[Plan, ...]
    """Plans with a known cost, cheapest first, at most 5 times as dear as the cheapest."""
    best: tuple[Plan, ...]
    """Those of them than which none is both cheaper and faster, cheapest first."""
    scaling: tuple[Plan, ...]
    """The recommended instance type on 1, 2, 4 … nodes, whatever the limits; of each number the
    fastest plan that runs and surely fits, or else the fastest."""


def frontier(
    inputs: Inputs,
    question: Question,
    answer: Estimate,
    *,
    on_progress: Progress | None = None,
) -> Frontier:
    """Return cost against time of the plans of a question, and scaling over nodes.

    The question is asked again, for the fastest plans, and for every number of nodes.

    Args:
        inputs: What the answer was made from.
        question: What was asked, with an amount of work.
        answer: What `estimate` returned.
        on_progress: As for `estimate`, which is called several times.

    Raises:
        UsageError: No amount of work was given, so that there is no cost and no time.
    """
    if question.asks_for_work or (answer.plans and not any(p.run for p in answer.plans)):
        raise UsageError(
            "Cost against time needs an amount of work.",
            fix="add --tokens, --samples, --epochs or --steps.",
        )
    whole = replace(question, top=None, all_variants=False)
    fastest = replace(whole, money=replace(question.money, sort="time"))
    asked = [estimate(inputs, one, on_progress=on_progress).plans for one in (whole, fastest)]
    scaling = _scaling(inputs, question, answer.best, on_progress or untold)
    plans = _near([*answer.plans, *asked[0], *asked[1], *scaling], question)
    return Frontier(plans=plans, best=tuple(_undominated(plans)), scaling=scaling)


def _near(plans: Iterable[Plan], question: Question) -> tuple[Plan, ...]:
    """Return the plans that a person would compare, each once."""
    found = {plan.id: plan for plan in plans if _is_comparable(plan, question)}
    ordered = sorted(found.values(), key=_cost_and_hours)
    limit = HIDDEN_ABOVE * _cost_and_hours(ordered[0])[0] if ordered else 0.0
    return tuple(plan for plan in ordered if _cost_and_hours(plan)[0] <= limit)


def _is_comparable(plan: Plan, question: Question) -> bool:
    job, money = plan.whole_job, question.money
    if job is None or job.usd is None or plan.stands_apart or plan.runnable is False:
        return False
    if plan.offer.accelerator.startswith(CPU_PREFIX):
        return False
    if money.budget_usd is not None and _cost_and_hours(plan)[0] > money.budget_usd:
        return False
    if money.deadline_s is not None and job.hours * SECONDS_PER_HOUR > money.deadline_s:
        return False
    return plan.p_oom is None or plan.p_oom <= money.max_oom


def _undominated(plans: Sequence[Plan]) -> Iterable[Plan]:
    """Yield each plan, of those that come cheapest first, that is faster than all before it."""
    hours = float("inf")
    for plan in plans:
        if _cost_and_hours(plan)[1] < hours:
            hours = _cost_and_hours(plan)[1]
            yield plan


def _scaling(
    inputs: Inputs, question: Question, best: Plan | None, on_progress: Progress
) -> tuple[Plan, ...]:
    if best is None:
        return ()
    from ..planner.search.search_space import node_counts

    offer = best.offer
    found = []
    counts = list(node_counts(replace(question.machine, nodes=())))
    for done, nodes in enumerate(counts):
        on_progress("comparing numbers of nodes", done, len(counts))
        machine = replace(
            question.machine,
            providers=(offer.provider,),
            instances=(offer.instance_type,),
            accelerators=(),
            nodes=(nodes,),
        )
        money = replace(question.money, deadline_s=None, budget_usd=None)
        asked = replace(question, machine=machine, money=money, top=None, by="instance")
        plans = [plan for plan in estimate(inputs, asked).plans if plan.whole_job is not None]
        # One that runs out of memory, or that nothing runs, is no promise of what a node brings.
        plans = [plan for plan in plans if _is_comparable(plan, asked)] or plans
        if plans:
            found.append(min(plans, key=lambda plan: _job(plan).hours))
    return tuple(found)


def _cost_and_hours(plan: Plan) -> tuple[float, float]:
    return plan.likely_usd or 0.0, _job(plan).hours


def _job(plan: Plan) -> WholeJob:
    assert plan.whole_job is not None
    return plan.whole_job
