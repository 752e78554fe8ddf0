"""Whole plans of candidates: their memory replayed, their intervals, what earlier runs measured."""

from __future__ import annotations

from dataclasses import replace

from ....profiles.profile import Profile
from ...memory.rank_memory import RankMemory
from ...plan.plan import Plan
from ...plan.question import Question
from ...predict.kept.model_cache import ModelCache
from ...predict.measured.known_runs import KnownRuns, as_measured, run_key
from ...predict.peak_memory import is_roomy, is_safe, memory_parts
from ...predict.predict import assemble
from ...predict.step_time import step_parts
from ..across_samples import kept_micro_batch
from ..candidate import Candidate
from ..layouts.some_layers import equal_layers, further_share
from ..search_space import asked_batch
from .to_plan import as_plan


class WholePlans:
    """Makes the plan of a candidate, and knows which candidate a plan was made of."""

    def __init__(self, question: Question, cache: ModelCache, known: KnownRuns) -> None:
        self._question = question
        self._cache = cache
        self._known = known
        self._made_of: dict[str, Candidate] = {}

    def plan(self, candidate: Candidate) -> Plan | None:
        """Return the whole plan of a candidate; None where its memory is short after all."""
        plan = _finish(candidate, self._question, self._cache, self._known)
        if plan is not None:
            self._made_of[plan.id] = candidate
        return plan

    def candidate(self, plan_id: str) -> Candidate:
        """Return what a plan that `plan` returned was made of."""
        return self._made_of[plan_id]


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
            smaller = smaller_peak(candidate, question, cache.profile)
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


def smaller_peak(candidate: Candidate, question: Question, profile: Profile) -> Candidate | None:
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
