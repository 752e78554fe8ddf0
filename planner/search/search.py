"""Search: the ranked plans that answer a question, and what became of the other candidates.

Candidates come from the sweep with a step time each; only the plans that are shown get intervals
and an allocator replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ...catalog.snapshot import Catalogue
from ...catalog.vocabulary import COMMITTED_YEARS, Offloaded
from ...profiles.curves.choice import USUAL_CURVES, CurveChoice
from ...profiles.passes.optimizers import with_optimizer
from ...profiles.profile import Profile
from ..cost.run_cost import samples_of, steps_of
from ..goodput.own_stops import NO_OWN_STOPS, OwnStops
from ..memory.rank_memory import RankMemory
from ..offload.host_memory import ordered
from ..plan.answer.answer_parts import Hidden, NearMiss, PriceDates, Recommended, Rejected
from ..plan.answer.asked import AskedQuestion
from ..plan.plan import Plan
from ..plan.question import Question
from ..predict.input_wait import unknown_input_notes
from ..predict.kept.kept_tables import KeptTables
from ..predict.kept.model_cache import ModelCache
from ..predict.measured.known_runs import KnownRuns, as_measured, run_key
from ..predict.peak_memory import is_roomy, is_safe, memory_parts
from ..predict.predict import assemble
from ..predict.step_time import step_parts
from .across_samples import across_samples_warnings, kept_micro_batch
from .answer.answer import answer_of, asked_question, price_dates
from .answer.compile_gain import compile_gain, kept_by_compiling
from .answer.infeasible import nearest_miss, none_is_run, others_miss, reasons
from .answer.ranking import rank
from .answer.to_plan import as_plan
from .batch_rule import FEW_STEPS, contrastive_notes
from .candidate import Candidate
from .frozen_ways import frozen_notes, refuse_nothing_frozen
from .layouts.some_layers import equal_layers, further_share
from .machines.offers import NO_SPOT_PRICES, Market, SpotPrices, refuse_unknown_place, survey
from .machines.runs_here import is_run, needs_build, stands_apart
from .progress import Progress, untold
from .search_space import Space, asked_batch, asked_stack, refuse_other_devices, space_of
from .sweep import Sweep

LAST_RESORTS: tuple[frozenset[Offloaded], ...] = (
    frozenset({"optimizer"}),
    frozenset({"parameters"}),
    frozenset({"parameters", "activations"}),
)
"""What is kept in host memory when nothing fits otherwise, the least first."""


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


def search(
    question: Question,
    profile: Profile,
    catalogue: Catalogue,
    known: KnownRuns | None = None,
    *,
    curve_choice: CurveChoice = USUAL_CURVES,
    kept: KeptTables | None = None,
    own_stops: OwnStops = NO_OWN_STOPS,
    spot_prices: SpotPrices = NO_SPOT_PRICES,
    on_progress: Progress = untold,
) -> SearchOutcome:
    """Return the plans that answer a question, best first.

    Args:
        question: work, machines, layout and money asked for.
        profile: the traced model, with a trace for every precision that may be tried.
        catalogue: offers and devices.
        known: what earlier runs of this model measured; candidates are found without it, and the
            plans that are shown then have those times.
        curve_choice: which measurements of devices the predictions rest on.
        kept: where tables that no device or price changes are kept from search to search; None for
            nowhere.
        own_stops: what stopped the user's own runs; what is expected of plans rests on it too.
        spot_prices: by place and day; the interval and the chances of spot plans rest on them.
        on_progress: told how many of the kinds of machine are compared, and what follows.

    Raises:
        UsageError: a name in the question is unknown, amounts contradict each other, or its stack
            runs on none of its devices.
    """
    if question.choices.optimizer:
        profile = with_optimizer(profile, question.choices.optimizer)
    refuse_nothing_frozen(question.choices, profile)
    refuse_unknown_place(question.work, catalogue)
    cache = ModelCache(profile, curve_choice=curve_choice, kept=kept)
    space = space_of(question, profile)
    market = survey(
        catalogue,
        question.machine,
        question.money,
        with_cpus=question.vs_cpu,
        by_region=question.by == "region",
        has_amount=_has_amount(question),
        own_stops=own_stops,
        work=question.work,
        spot_prices=spot_prices,
    )
    devices = [one.accelerator for one in market.choices]
    stack = asked_stack(profile, question.choices, devices)
    if stack is not None:
        refuse_other_devices(stack, devices)
    asked = question.choices.offload
    sweep = Sweep(
        question,
        cache,
        space,
        market,
        offload=frozenset(asked or ()),
        on_progress=on_progress,
    )
    candidates = list(sweep.candidates())
    if asked is None and not space.fixed and not candidates and sweep.counts["out_of_memory"]:
        for offload in LAST_RESORTS:
            last = Sweep(question, cache, space, market, offload=offload, on_progress=on_progress)
            candidates = list(last.candidates())
            if candidates:
                sweep = last
                break
    on_progress("replaying the memory of the best plans", None, None)
    outcome = _outcome(question, cache, space, sweep, candidates, known or {}, market)
    cache.save()
    return outcome


def _outcome(
    question: Question,
    cache: ModelCache,
    space: Space,
    sweep: Sweep,
    candidates: list[Candidate],
    known: KnownRuns,
    market: Market,
) -> SearchOutcome:
    made_of: dict[str, Candidate] = {}

    def plan_of(candidate: Candidate) -> Plan | None:
        plan = _finish(candidate, question, cache, known)
        if plan is not None:
            made_of[plan.id] = candidate
        return plan

    def fits(candidate: Candidate) -> bool:
        return _finish(candidate, question, cache, known) is not None

    too_many = tuple(_too_many_for_a_block(question, candidates))
    had = [one for one in candidates if one.is_to_be_had]
    sweep.counts["no_price"] += sum(one.variants_that_fit for one in candidates)
    sweep.counts["no_price"] -= sum(one.variants_that_fit for one in had)
    candidates = had
    within: list[Candidate] = []
    not_run: str | None = None
    if question.runnable:
        run = [one for one in candidates if is_run(one, cache.profile)]
        sweep.counts["unsupported"] += sum(one.variants_that_fit for one in candidates)
        sweep.counts["unsupported"] -= sum(one.variants_that_fit for one in run)
        not_run = None if run else none_is_run(candidates, cache.profile)
        candidates = run
    if question.asks_for_work:
        candidates = [one.within(question.money) for one in candidates]
    for candidate in candidates:
        reason = candidate.breaks(question.money)
        if reason is None:
            within.append(candidate)
        else:
            sweep.counts[reason] += candidate.variants_that_fit
    ranked = rank(
        within,
        question,
        plan_of,
        runs=lambda one: is_run(one, cache.profile),
        stands_apart=lambda one: stands_apart(one.one_node.accelerator, cache.profile),
        needs_build=lambda one: needs_build(one.one_node.accelerator, cache.profile),
    )
    best = answer_of(ranked.plans, question, is_batch_free=space.global_batch is None)
    across = across_samples_warnings(cache.profile, question.choices, space.global_batch)
    chosen = best.recommended
    if chosen is not None:
        plan = next(one for one in best.plans if one.id == chosen.id)
        gain = compile_gain(plan, made_of[plan.id], question, cache, plan_of)
        chosen = chosen.model_copy(update={"with_compile": gain})
    missed = None
    if not best.plans:
        missed = not_run or market.no_match
        missed = missed or nearest_miss(candidates, question, cache.profile, fits=fits)
        hint = kept_by_compiling(candidates, question, cache, plan_of)
        missed = " ".join(filter(None, (missed, hint)))
    return SearchOutcome(
        question=asked_question(question, cache.profile, space.batch),
        plans=best.plans,
        feasible=sum(c.variants_that_fit for c in within),
        rejected=Rejected(**sweep.counts),
        candidates=sweep.tried,
        hidden=Hidden(above_cost=ranked.above_cost),
        headlines=best.headlines,
        recommended=chosen,
        recommended_on_large_clouds=best.on_large_clouds,
        near_miss=best.near_miss,
        prices=price_dates(best.plans),
        nearest_miss=missed,
        warnings=(*cache.profile.warnings, *across),
        notes=(
            *across,
            *_notes(question, space, cache.profile),
            *frozen_notes(question.choices, cache.profile, best.plans),
            *sorted(sweep.refusals),
            *_offered(question, sweep, best.plans),
            *_no_terms(question, market),
            *too_many,
            *others_miss(candidates, best.plans, question, cache.profile, fits=fits),
            *(() if best.plans else reasons(space, sweep.market, cache.profile, question.choices)),
        ),
    )


def _finish(
    candidate: Candidate, question: Question, cache: ModelCache, known: KnownRuns
) -> Plan | None:
    """Return the whole plan of a candidate, its memory checked by replaying the allocator.

    Where the replay shows more fragmentation than the search assumed, more layers are recomputed if
    only some are; then the micro-batch is halved (and the accumulation doubled, so that the global
    batch stays) until memory is not short.
    """
    while True:
        memory = memory_parts(cache, candidate.setup)
        smaller = None
        if not _is_roomy(cache, candidate, memory, question.money.max_oom):
            smaller = _smaller(candidate, question, cache.profile)
        if smaller is not None:
            candidate = smaller
            continue
        parts = step_parts(cache, candidate.site, candidate.setup)
        prediction = assemble(cache, candidate.site, candidate.setup, parts, memory)
        if not prediction.fits:
            return None
        plan = as_plan(candidate, prediction, cache.profile, question)
        measured = known.get(run_key(plan))
        if measured is None:
            return plan
        prediction = as_measured(prediction, measured)
        return as_plan(candidate, prediction, cache.profile, question)


def _smaller(candidate: Candidate, question: Question, profile: Profile) -> Candidate | None:
    """Return a candidate with a smaller peak and the same global batch; None where none is left."""
    if candidate.recompute_share < 1 and question.choices.recompute_layers is None:
        layers = equal_layers(profile) // candidate.layout.pipeline
        share = further_share(candidate.recompute_share, layers)
        return replace(candidate, recompute_share=share)
    batch = asked_batch(question, profile).samples
    kept = kept_micro_batch(profile, question.choices, batch)
    if candidate.micro_batch % 2 or question.choices.micro_batches or kept is not None:
        return None
    accum = candidate.grad_accum * (1 if batch is None else 2)
    size = candidate.micro_batch // 2
    return replace(
        candidate,
        micro_batch=size,
        grad_accum=accum,
        global_batch=size * accum * candidate.layout.data,
    )


def _is_roomy(cache: ModelCache, candidate: Candidate, memory: RankMemory, max_oom: float) -> bool:
    """Return whether memory is not short, nor likely to run out where safe plans were found."""
    site, setup = candidate.site, candidate.setup
    if not is_roomy(cache, site, setup, memory):
        return False
    return candidate.is_risky or is_safe(cache, site, setup, memory, max_oom=max_oom)


def _offered(question: Question, sweep: Sweep, plans: tuple[Plan, ...]) -> Iterator[str]:
    """Yield that the plans offload, where nobody asked for that."""
    if sweep.offload and question.choices.offload is None and plans:
        what = " and ".join(ordered(sweep.offload))
        yield (
            f"nothing that was tried fits in device memory, so these plans keep {what} in host"
            " memory: give --offload none to rule that out"
        )


def _has_amount(question: Question) -> bool:
    """Return whether it is known how much is trained, before any limit."""
    work = question.work
    return any(one is not None for one in (work.tokens, work.samples, work.epochs, work.steps))


def _too_many_for_a_block(question: Question, candidates: list[Candidate]) -> Iterator[str]:
    """Yield that one block holds no more, where nodes that were asked for are more than that."""
    terms = [one.choice.term for one in candidates if not one.is_to_be_had]
    most = max((one.most_instances or 0 for one in terms if one is not None), default=0)
    if question.money.purchase == "block" and most:
        yield (
            f"one capacity block has {most} instances at most: plans on more are left out, because"
            " nobody promises that two blocks are near each other"
        )


def _no_terms(question: Question, market: Market) -> Iterator[str]:
    """Yield why no machine has a price, where one for a term was asked for."""
    wish = question.money.purchase
    if any(choice.usd_per_hour is not None for choice in market.choices):
        return
    if wish in COMMITTED_YEARS:
        yield (
            f"no price of these machines committed for {COMMITTED_YEARS[wish]} year(s) is known:"
            " the catalogue has those of Google Cloud alone; state yours under `reserved:` of a"
            " file for --pricebook, without a count"
        )
    if wish == "block":
        yield (
            "no price of a capacity block of these machines is known: sellers quote one for each"
            " date (`gpuplan capacity --block` asks AWS); state it under `blocks:` of a file for"
            " --pricebook"
        )
    if wish == "reserved":
        yield (
            "no reserved price of these machines is known: state it under `reserved:` of a file"
            " for --pricebook"
        )


def _notes(question: Question, space: Space, profile: Profile) -> Iterator[str]:
    yield from profile.notes
    yield from unknown_input_notes(profile)
    yield from contrastive_notes(profile)
    batch, work = space.batch, question.work
    samples = None
    if batch.samples is not None:
        samples = samples_of(work, profile.tokens_per_sample, batch.samples)
    if batch.source == "option" and batch.samples is not None and samples is not None:
        steps = steps_of(samples, batch.samples)
        if steps < FEW_STEPS and work.steps is None:
            yield (
                f"a global batch of {batch.samples:,} samples leaves {steps:,} optimizer"
                f" {'step' if steps == 1 else 'steps'}, which is few for a schedule of the learning"
                " rate; tokens are written --global-batch 0.5M-tokens"
            )
