"""What the candidates of a search answer: the plans in order, and what is said beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ...catalog.types import Accelerator
from ...profiles.profile import Profile
from ..plan.answer.answer_parts import Hidden, NearMiss, PriceDates, Recommended, Rejected
from ..plan.answer.asked import AskedQuestion
from ..plan.plan import Plan
from ..plan.question import Question
from ..predict.input_wait import input_notes
from ..predict.kept.model_cache import ModelCache
from ..predict.measured.known_runs import KnownRuns
from .across_samples import across_samples_warnings
from .answer.answer import Answer, answer_of, asked_question, price_dates
from .answer.compile_gain import compile_gain, kept_by_compiling
from .answer.embedding_note import embedding_notes
from .answer.infeasible import (
    nearest_miss,
    none_is_run,
    none_of_so_many,
    not_sold_so,
    nothing_fits,
    others_miss,
    reasons,
    tried_without_precision,
)
from .answer.named_devices import devices_without_plan
from .answer.notes import (
    budget_note,
    no_terms_note,
    offload_note,
    own_machines_note,
    question_notes,
    too_many_for_a_block,
)
from .answer.odd_width_note import odd_width_note
from .answer.own_machine import own_machine_notes, own_machine_reach
from .answer.ranking import rank
from .answer.whole_plans import WholePlans
from .candidate import Candidate
from .frozen_ways import frozen_notes
from .layouts.next_best import NextBest
from .machines.many_at_once import many_at_once
from .machines.runs_here import is_run, needs_build, stands_apart
from .peaks import with_peaks
from .sweep import Sweep
from .whole_work import WholeWork


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The ranked plans of a question, and what became of the other candidates."""

    question: AskedQuestion
    plans: tuple[Plan, ...]
    feasible: int
    rejected: Rejected
    candidates: int
    hidden: Hidden = Hidden()
    headlines: dict[str, str] = field(default_factory=dict)
    """"cheapest", "fastest" and "smallest" → id of the plan."""
    recommended: Recommended | None = None
    recommended_on_large_clouds: Recommended | None = None
    near_miss: NearMiss | None = None
    prices: PriceDates | None = None
    nearest_miss: str | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def outcome_of(
    question: Question,
    cache: ModelCache,
    sweep: Sweep,
    candidates: list[Candidate],
    known: KnownRuns,
) -> SearchOutcome:
    """Return what the candidates of a search answer; those that fall out are counted in its sweep.

    Args:
        question: that is answered.
        cache: of its model.
        sweep: that found them.
        candidates: as it yielded them.
        known: what earlier runs of the model measured.
    """
    profile, space = cache.profile, sweep.space
    next_best = NextBest(
        cache=cache,
        space=space,
        whole=WholeWork(question.work, profile),
        max_oom=question.money.max_oom,
        all_variants=question.all_variants,
    )
    whole = WholePlans(question, cache, known, next_best)
    standing = _standing(candidates, question, profile, sweep)
    within = standing.within
    if question.money.sort == "memory":
        within = list(with_peaks(within, cache))
    ranked = rank(
        within,
        question,
        whole.plan,
        runs=lambda one: is_run(one, profile),
        stands_apart=_of_device(stands_apart, profile),
        needs_build=_of_device(needs_build, profile),
    )
    best = answer_of(ranked.plans, question, is_batch_free=space.global_batch is None)
    across = across_samples_warnings(profile, question.choices, space.global_batch)
    return SearchOutcome(
        question=asked_question(question, profile, space.batch),
        plans=best.plans,
        feasible=sum(one.variants_that_fit for one in standing.within),
        rejected=Rejected(**sweep.counts),
        candidates=sweep.tried,
        hidden=Hidden(above_cost=ranked.above_cost, above_time=ranked.above_time),
        headlines=best.headlines,
        recommended=_with_compile_gain(best, question, cache, whole),
        recommended_on_large_clouds=best.on_large_clouds,
        near_miss=best.near_miss,
        prices=price_dates(best.plans, standing.candidates),
        nearest_miss=None if best.plans else _missed(standing, question, cache, sweep, whole),
        warnings=(*profile.warnings, *across),
        notes=(
            *across,
            *_notes_of_chosen(best, standing.within, cache, whole),
            *_notes_of_question(question, profile, sweep, best),
            *too_many_for_a_block(question, candidates),
            *_notes_of_others(question, profile, sweep, standing, best, whole),
        ),
    )


def _notes_of_question(
    question: Question, profile: Profile, sweep: Sweep, best: Answer
) -> Iterator[str]:
    """Yield what was assumed of the question, and what of it was not tried."""
    yield from question_notes(question, sweep.space, profile)
    yield from frozen_notes(question.choices, profile, best.plans)
    yield from sorted(sweep.refusals)
    yield from offload_note(question, sweep.offload, best.plans)
    yield from budget_note(question, best.plans)
    yield from no_terms_note(question, sweep.market)
    yield from own_machines_note(sweep.market)


def _notes_of_others(
    question: Question,
    profile: Profile,
    sweep: Sweep,
    standing: _Standing,
    best: Answer,
    whole: WholePlans,
) -> Iterator[str]:
    """Yield why machines that were asked for are not among the plans."""
    market = sweep.market
    yield from devices_without_plan(
        question, profile, market, standing.candidates, standing.within, best.plans
    )
    yield from others_miss(standing.candidates, best.plans, question, profile, plan_of=whole.plan)
    if not best.plans:
        yield from reasons(sweep.space, market, profile, question.choices)


@dataclass(frozen=True)
class _Standing:
    """Candidates that are left when those fell out that nobody can have or run."""

    candidates: list[Candidate]
    within: list[Candidate]
    """Those within the limits of money and time."""
    none_left: str | None
    """Why none is left, where there are fewer machines, or gpuplan runs none and was asked to."""


def _of_device(
    judge: Callable[[Accelerator, Profile], bool], profile: Profile
) -> Callable[[Candidate], bool]:
    """Return what is judged of a candidate's device, once a device: there are thousands of them."""
    known: dict[str, bool] = {}

    def judged(one: Candidate) -> bool:
        device = one.one_node.accelerator
        if device.name not in known:
            known[device.name] = judge(device, profile)
        return known[device.name]

    return judged


def _standing(
    candidates: list[Candidate], question: Question, profile: Profile, sweep: Sweep
) -> _Standing:
    """Return the candidates that stand, and count the others in the sweep."""

    def left(kept: list[Candidate], of: list[Candidate], reason: str) -> list[Candidate]:
        sweep.counts[reason] += sum(one.variants_that_fit for one in of)
        sweep.counts[reason] -= sum(one.variants_that_fit for one in kept)
        return kept

    standing = left([one for one in candidates if one.is_to_be_had], candidates, "no_price")
    none_left = None if standing else none_of_so_many(candidates)
    if question.runnable and standing:
        run = [one for one in standing if is_run(one, profile)]
        none_left = None if run else none_is_run(standing, profile)
        standing = left(run, standing, "unsupported")
    if question.asks_for_work:
        standing = [one.within(question.money) for one in standing]
    within: list[Candidate] = []
    for candidate in standing:
        reason = candidate.breaks(question.money)
        if reason is None:
            within.append(candidate)
        else:
            sweep.counts[reason] += candidate.variants_that_fit
    return _Standing(standing, within, none_left)


def _with_compile_gain(
    best: Answer, question: Question, cache: ModelCache, whole: WholePlans
) -> Recommended | None:
    """Return the recommendation with what torch.compile would change."""
    chosen = best.recommended
    if chosen is None:
        return None
    plan = next(one for one in best.plans if one.id == chosen.id)
    gain = compile_gain(plan, whole.candidate(plan.id), question, cache, whole.plan)
    return chosen.model_copy(update={"with_compile": gain})


def _notes_of_chosen(
    best: Answer, others: Sequence[Candidate], cache: ModelCache, whole: WholePlans
) -> tuple[str, ...]:
    """Return that no cloud is needed for the recommended plan, else what its input takes.

    With what is known of whether so many machines can be had, where they are many, what an odd
    width of the model costs, and whether dense gradients of tables are most of what a step moves.
    """
    profile = cache.profile
    if best.recommended is None:
        first = best.plans[:1]
        return tuple(
            note
            for plan in first
            for note in own_machine_reach(plan, whole.candidate(plan.id), profile)
        )
    plan = next(one for one in best.plans if one.id == best.recommended.id)
    candidate = whole.candidate(plan.id)
    own = tuple(own_machine_notes(plan, candidate, profile))
    many = many_at_once(candidate.choice, candidate.nodes)
    return own or (
        *input_notes(profile, candidate.site, plan.samples_per_s),
        *(() if many is None else (many,)),
        *odd_width_note(cache, (whole.candidate(one.id) for one in best.plans), others),
        *embedding_notes(profile, candidate.setup),
    )


def _missed(
    standing: _Standing, question: Question, cache: ModelCache, sweep: Sweep, whole: WholePlans
) -> str:
    """Return why there is no plan, and what to give to have one."""
    why = standing.none_left or sweep.market.no_match
    if why is None and not standing.candidates and not sweep.space.fixed:
        why = not_sold_so(sweep.market, question)
    if why is None and not standing.candidates and sweep.counts["out_of_memory"]:
        why = nothing_fits(sweep.market, question)
    missed = why or nearest_miss(standing.candidates, question, cache.profile, plan_of=whole.plan)
    hint = kept_by_compiling(standing.candidates, question, cache, whole.plan)
    is_limit = missed is not None and why is None
    faster = tried_without_precision(standing.candidates, question, cache.profile)
    return " ".join(filter(None, (missed, hint, faster if is_limit else None)))
