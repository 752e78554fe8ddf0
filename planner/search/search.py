"""Search: the ranked plans that answer a question, and what became of the other candidates.

Candidates come from the sweep with a step time each; only the plans that are shown get intervals
and an allocator replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ...catalog.snapshot import Catalogue
from ...catalog.types import CPU_PREFIX
from ...catalog.vocabulary import Offloaded
from ...profiles.curves.choice import USUAL_CURVES, CurveChoice
from ...profiles.passes.optimizers import with_optimizer
from ...profiles.profile import Profile
from ..offload.host_memory import ordered
from ..plan.plan import Plan, Rejected
from ..plan.question import Question
from ..predict.known_runs import KnownRuns, as_measured, run_key
from ..predict.model_cache import ModelCache
from ..predict.peak_memory import is_roomy, memory_parts
from ..predict.predict import assemble
from ..predict.step_time import step_parts
from .infeasible import reasons
from .offers import survey
from .ranking import Candidate, best_of_each_accelerator, headlines, mark_ties
from .search_space import Space, space_of
from .sweep import Sweep
from .to_plan import as_plan

MOST_PLANS = 100
LAST_RESORTS: tuple[frozenset[Offloaded], ...] = (
    frozenset({"optimizer"}),
    frozenset({"parameters"}),
    frozenset({"parameters", "activations"}),
)
"""What is kept in host memory when nothing fits otherwise, the least first."""


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The ranked plans of a question, and what became of the other candidates."""

    plans: tuple[Plan, ...]
    feasible: int
    rejected: Rejected
    candidates: int
    headlines: dict[str, str] = field(default_factory=dict)
    """"cheapest", "fastest" and "smallest" → id of the plan."""
    notes: tuple[str, ...] = ()


def search(
    question: Question,
    profile: Profile,
    catalogue: Catalogue,
    known: KnownRuns | None = None,
    *,
    curve_choice: CurveChoice = USUAL_CURVES,
) -> SearchOutcome:
    """Return the plans that answer a question, best first.

    Args:
        question: work, machines, layout and money asked for.
        profile: the traced model, with a trace for every precision that may be tried.
        catalogue: offers and devices.
        known: what earlier runs of this model measured; candidates are found without it, and the
            plans that are shown then have those times.
        curve_choice: which measurements of devices the predictions rest on.

    Raises:
        UsageError: a name in the question is unknown, or amounts contradict each other.
    """
    if question.choices.optimizer:
        profile = with_optimizer(profile, question.choices.optimizer)
    cache = ModelCache(profile, curve_choice=curve_choice)
    space = space_of(question, profile)
    market = survey(catalogue, question.machine, question.money, with_cpus=question.vs_cpu)
    asked = question.choices.offload
    sweep = Sweep(question, cache, space, market, offload=frozenset(asked or ()))
    candidates = list(sweep.candidates())
    if asked is None and not space.fixed and not candidates and sweep.counts["out_of_memory"]:
        for offload in LAST_RESORTS:
            last = Sweep(question, cache, space, market, offload=offload)
            candidates = list(last.candidates())
            if candidates:
                sweep = last
                break
    return _outcome(question, cache, space, sweep, candidates, known or {})


def _outcome(
    question: Question,
    cache: ModelCache,
    space: Space,
    sweep: Sweep,
    candidates: list[Candidate],
    known: KnownRuns,
) -> SearchOutcome:
    def plan_of(candidate: Candidate) -> Plan | None:
        return _finish(candidate, question, cache, known)

    within: list[Candidate] = []
    for candidate in candidates:
        reason = candidate.breaks(question, cache.profile)
        if reason is None:
            within.append(candidate)
        else:
            sweep.counts[reason] += candidate.variants_that_fit
    ranked = best_of_each_accelerator(within, question, cache.profile, plan_of)
    picks = headlines(tuple(ranked))
    top = question.top or MOST_PLANS
    plans = mark_ties(ranked[:top] + [plan for plan in ranked[top:] if _stays(plan, picks)])
    return SearchOutcome(
        plans=plans,
        feasible=sum(c.variants_that_fit for c in within),
        rejected=Rejected(**sweep.counts),
        candidates=sweep.tried,
        headlines=picks,
        notes=(
            *_notes(question, space, cache.profile),
            *sorted(sweep.refusals),
            *_offered(question, sweep, plans),
            *(() if plans else reasons(space, sweep.market, cache.profile, question.choices)),
        ),
    )


def _stays(plan: Plan, picks: dict[str, str]) -> bool:
    """Return whether a plan below the last place asked for is still shown."""
    return plan.id in picks.values() or plan.offer.accelerator.startswith(CPU_PREFIX)


def _finish(
    candidate: Candidate, question: Question, cache: ModelCache, known: KnownRuns
) -> Plan | None:
    """Return the whole plan of a candidate, its memory checked by replaying the allocator.

    Where the replay shows more fragmentation than the search assumed, the micro-batch is halved
    (and the accumulation doubled, when the global batch is given) until memory is not short.
    """
    fixed_batch = question.work.global_batch or cache.profile.default_micro_batch
    while True:
        setup = candidate.setup
        memory = memory_parts(cache, setup)
        last = setup.micro_batch % 2 or question.choices.micro_batches
        if last or is_roomy(cache, candidate.site, setup, memory):
            parts = step_parts(cache, candidate.site, setup)
            prediction = assemble(cache, candidate.site, setup, parts, memory)
            if not prediction.fits:
                return None
            plan = as_plan(candidate, prediction, cache.profile, question)
            measured = known.get(run_key(plan))
            if measured is None:
                return plan
            prediction = as_measured(prediction, measured)
            return as_plan(candidate, prediction, cache.profile, question)
        accum = candidate.grad_accum * (2 if fixed_batch else 1)
        size = candidate.micro_batch // 2
        candidate = replace(
            candidate,
            micro_batch=size,
            grad_accum=accum,
            global_batch=size * accum * candidate.layout.data,
        )


def _offered(question: Question, sweep: Sweep, plans: tuple[Plan, ...]) -> Iterator[str]:
    """Yield that the plans offload, where nobody asked for that."""
    if sweep.offload and question.choices.offload is None and plans:
        what = " and ".join(ordered(sweep.offload))
        yield (
            f"nothing that was tried fits in device memory, so these plans keep {what} in host"
            " memory: give --offload none to rule that out"
        )


def _notes(question: Question, space: Space, profile: Profile) -> Iterator[str]:
    yield from profile.notes
    if space.global_batch is None and not space.fixed and question.work != type(question.work)():
        yield (
            "the global batch was left free, so each plan uses what its memory holds; large batches"
            " may train worse: give --global-batch"
        )
