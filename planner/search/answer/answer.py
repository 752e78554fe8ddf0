"""From ranked plans to the answer: which are shown, which come first, and the question repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from ....profiles.profile import Profile
from ...cost.run_cost import samples_of, steps_of
from ...plan.answer.answer_parts import NearMiss, PriceDates, Recommended
from ...plan.answer.asked import (
    AskedBatch,
    AskedMachine,
    AskedQuestion,
    AskedWork,
    Limits,
    WorkKind,
)
from ...plan.plan import Plan
from ...plan.question import Question, Work
from ..candidate import Candidate
from ..machines.offers import LARGE_CLOUDS
from .near_miss import near_miss
from .ranking import MOST_PLANS, headlines, mark_ties
from .recommended import recommended, sensible


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The plans that are shown, numbered, and those that the first lines name."""

    plans: tuple[Plan, ...]
    headlines: dict[str, str]
    recommended: Recommended | None
    on_large_clouds: Recommended | None
    """Where the recommended plan is of another seller, and no seller was asked for."""
    near_miss: NearMiss | None
    """The nearest plan where none is recommended, or none that gpuplan runs."""


def answer_of(ranked: Sequence[Plan], question: Question, *, is_batch_free: bool) -> Answer:
    """Return the answer that ranked plans make.

    Args:
        ranked: finished plans in order.
        question: what was asked.
        is_batch_free: whether each plan has a global batch of its own.
    """
    money = question.money
    considered = sensible(ranked, money, is_batch_free=is_batch_free)
    # With as much work as the limits allow, the plans to look at are those that train the most.
    picks = {} if question.asks_for_work else headlines(considered)
    best = recommended(considered, money)
    elsewhere = None
    if best is not None and not question.machine.providers:
        by_id = {plan.id: plan for plan in ranked}
        if by_id[best.id].offer.provider not in LARGE_CLOUDS:
            large = [plan for plan in ranked if plan.offer.provider in LARGE_CLOUDS]
            elsewhere = recommended(sensible(large, money, is_batch_free=is_batch_free), money)
    missed = near_miss(ranked, best, money, only_runnable=question.runnable)
    firsts = (best, elsewhere, missed)
    named = {one.id for one in firsts if one is not None} | set(picks.values())
    plans = mark_ties(_shown(ranked, named, question.top), money.sort)
    places = {plan.id: plan.position for plan in plans}
    return Answer(
        plans=plans,
        headlines=picks,
        recommended=_placed(best, places),
        on_large_clouds=_placed(elsewhere, places),
        near_miss=missed,
    )


def _shown(ranked: Sequence[Plan], named: set[str], top: int | None) -> list[Plan]:
    """Return the plans to show in order: those that are named first, and the best of the others.

    Host processors and plans that need a port use up no place of the others.
    """
    own = [plan for plan in ranked if not _stands_apart(plan)]
    places = (top or MOST_PLANS) - sum(plan.id in named for plan in own)
    others = [plan.id for plan in own if plan.id not in named][: max(0, places)]
    kept = named | set(others)
    return [plan for plan in ranked if _stands_apart(plan) or plan.id in kept]


def _stands_apart(plan: Plan) -> bool:
    return plan.stands_apart or plan.offer.is_cpu


def _placed(found: Recommended | None, places: dict[str, int]) -> Recommended | None:
    if found is None:
        return None
    return found.model_copy(update={"position": places[found.id]})


def price_dates(plans: Sequence[Plan], ruled_out: Sequence[Candidate] = ()) -> PriceDates | None:
    """Return the dates of the prices of these plans; of what was ruled out where there is none.

    None where no price is dated.
    """
    offers = [one.offer for one in plans] or [one.choice.offer for one in ruled_out]
    return PriceDates.of((one.price_date, one.price_date_precision) for one in offers)


def asked_question(question: Question, profile: Profile, batch: AskedBatch) -> AskedQuestion:
    """Return the question as its answer repeats it."""
    machine, money = question.machine, question.money
    return AskedQuestion(
        model=profile.name,
        params=profile.params,
        work=_asked_work(question.work, profile.tokens_per_sample, batch.samples),
        global_batch=batch,
        limits=Limits(
            deadline_s=money.deadline_s, budget_usd=money.budget_usd, max_oom=money.max_oom
        ),
        machine=AskedMachine(
            providers=machine.providers,
            regions=machine.regions,
            jurisdictions=machine.jurisdictions,
            accelerators=machine.accelerators,
            instances=machine.instances,
            nodes=machine.nodes,
            max_nodes=machine.max_nodes,
        ),
        purchase=money.purchase,
        sort=money.sort,
    )


def _asked_work(work: Work, tokens_per_sample: float | None, global_batch: int | None) -> AskedWork:
    kinds: tuple[WorkKind, ...] = get_args(WorkKind)
    given: list[WorkKind] = [name for name in kinds if getattr(work, name) is not None]
    kind = given[0] if given else None
    samples = steps = None
    if global_batch is not None:
        samples = samples_of(work, tokens_per_sample, global_batch)
        steps = None if samples is None else steps_of(samples, global_batch)
    elif work.steps is not None:
        steps = work.steps
    tokens = samples * tokens_per_sample if samples and tokens_per_sample else work.tokens
    return AskedWork(
        kind=kind,
        amount=None if kind is None else getattr(work, kind),
        samples=samples,
        tokens=tokens,
        steps=steps,
        dataset_size=work.dataset_size,
        dataset_bytes=work.dataset_bytes,
        dataset_at=work.dataset_at,
        eval_every=work.eval_every,
        eval_samples=work.eval_samples,
        critical_batch=work.critical_batch,
    )
