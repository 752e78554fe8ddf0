"""Search: the ranked plans that answer a question, and what became of the other candidates.

Candidates come from the sweep with a step time each; only the plans that are shown get intervals
and an allocator replay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...catalog.snapshot import Catalogue
from ...catalog.vocabulary import Offloaded
from ...profiles.curves.choice import USUAL_CURVES, CurveChoice
from ...profiles.passes.optimizers import with_optimizer
from ...profiles.profile import Profile
from ..goodput.evaluations import evaluations_of
from ..goodput.own_stops import NO_OWN_STOPS, OwnStops
from ..plan.plan import Plan
from ..plan.question import Question
from ..predict.kept.kept_tables import KeptTables
from ..predict.kept.model_cache import ModelCache
from ..predict.measured.known_runs import KnownRuns
from .candidate import Candidate
from .frozen_ways import refuse_nothing_frozen
from .machines.offers import NO_SPOT_PRICES, Market, SpotPrices, refuse_unknown_place, survey
from .outcome import SearchOutcome, outcome_of
from .progress import Progress, untold
from .search_space import Space, asked_batch, asked_stack, refuse_other_devices, space_of
from .sweep import Sweep

LAST_RESORTS: tuple[frozenset[Offloaded], ...] = (
    frozenset({"optimizer"}),
    frozenset({"parameters"}),
    frozenset({"parameters", "activations"}),
)
"""What is kept in host memory when nothing fits otherwise, the least first."""


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

    Where a budget says how much is trained, a first answer says about how much that is, and the
    batch of the rule is that of such an amount: a fine-tune has another than a pre-training.

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
    basis = _Basis(
        profile=profile,
        catalogue=catalogue,
        known=known or {},
        curve_choice=curve_choice,
        kept=kept,
        own_stops=own_stops,
        spot_prices=spot_prices,
        on_progress=on_progress,
    )
    found = _searched(question, basis)
    likely = _with_likely_amount(question, found, profile)
    return found if likely is None else _searched(likely, basis)


@dataclass(frozen=True, kw_only=True)
class _Basis:
    """What a search rests on beside its question; `search` explains the fields."""

    profile: Profile
    catalogue: Catalogue
    known: KnownRuns
    curve_choice: CurveChoice
    kept: KeptTables | None
    own_stops: OwnStops
    spot_prices: SpotPrices
    on_progress: Progress


def _with_likely_amount(
    question: Question, found: SearchOutcome, profile: Profile
) -> Question | None:
    """Return the question with what the first answer trains; None where that changes no batch."""
    before = found.question.global_batch
    if not question.asks_for_work or not found.plans or before.source != "rule":
        return None
    chosen = found.plans[0] if found.recommended is None else _named(found, found.recommended.id)
    samples = None if chosen.run is None else chosen.run.trained_samples
    likely = replace(question, work=replace(question.work, about_samples=samples))
    return None if asked_batch(likely, profile).samples == before.samples else likely


def _named(found: SearchOutcome, plan_id: str) -> Plan:
    return next(one for one in found.plans if one.id == plan_id)


def _searched(question: Question, basis: _Basis) -> SearchOutcome:
    """Return what one search answers."""
    profile = basis.profile
    refuse_nothing_frozen(question.choices, profile)
    refuse_unknown_place(question.work, basis.catalogue)
    cache = ModelCache(profile, curve_choice=basis.curve_choice, kept=basis.kept)
    space = space_of(question, profile)
    market = _market(question, basis)
    devices = [one.accelerator for one in market.choices]
    stack = asked_stack(profile, question.choices, devices)
    if stack is not None:
        refuse_other_devices(stack, devices)
    sweep, candidates = _swept(question, cache, space, market, basis.on_progress)
    basis.on_progress("replaying the memory of the best plans", None, None)
    outcome = outcome_of(question, cache, sweep, candidates, basis.known)
    cache.save()
    return outcome


def _market(question: Question, basis: _Basis) -> Market:
    return survey(
        basis.catalogue,
        question.machine,
        question.money,
        with_cpus=question.vs_cpu,
        by_region=question.by == "region",
        has_amount=_has_amount(question),
        own_stops=basis.own_stops,
        work=question.work,
        spot_prices=basis.spot_prices,
        evaluations=evaluations_of(question.work, basis.profile),
    )


def _swept(
    question: Question, cache: ModelCache, space: Space, market: Market, on_progress: Progress
) -> tuple[Sweep, list[Candidate]]:
    """Return the candidates of a question, and the sweep that found them.

    Where nothing fits, and the question leaves open what is kept in host memory, more and more is.
    """

    def sweep_with(offload: frozenset[Offloaded]) -> tuple[Sweep, list[Candidate]]:
        sweep = Sweep(question, cache, space, market, offload=offload, on_progress=on_progress)
        return sweep, list(sweep.candidates())

    asked = question.choices.offload
    first, candidates = sweep_with(frozenset(asked or ()))
    if asked is not None or space.fixed or candidates or not first.counts["out_of_memory"]:
        return first, candidates
    for offload in LAST_RESORTS:
        last, candidates = sweep_with(offload)
        if candidates:
            return last, candidates
    return first, []


def _has_amount(question: Question) -> bool:
    """Return whether it is known how much is trained, before any limit."""
    work = question.work
    return any(one is not None for one in (work.tokens, work.samples, work.epochs, work.steps))
