"""Whole plans of candidates: their memory replayed, their intervals, what earlier runs measured."""

from __future__ import annotations

from ...memory.rank_memory import RankMemory
from ...plan.plan import Plan
from ...plan.question import Question
from ...predict.kept.model_cache import ModelCache
from ...predict.measured.known_runs import KnownRuns, as_measured, run_key
from ...predict.memory.peak_memory import is_roomy, is_safe, memory_parts
from ...predict.predict import assemble
from ...predict.step_time import step_parts
from ..candidate import Candidate
from ..layouts.next_best import NextBest, TooLarge
from .to_plan import as_plan

MOST_TRIES = 32
"""Variants whose allocator is replayed before a candidate is said to be short of memory."""


class WholePlans:
    """Makes the plan of a candidate, and knows which candidate a plan was made of."""

    def __init__(
        self, question: Question, cache: ModelCache, known: KnownRuns, next_best: NextBest
    ) -> None:
        self._question = question
        self._cache = cache
        self._known = known
        self._next_best = next_best
        self._made_of: dict[str, Candidate] = {}

    def plan(self, candidate: Candidate) -> Plan | None:
        """Return the whole plan of a candidate; None where its memory is short after all.

        So it is where what fits in its place breaks a limit of the question.
        """
        plan = _finish(candidate, self._question, self._cache, self._known, self._next_best)
        if plan is not None:
            self._made_of[plan.id] = candidate
        return plan

    def candidate(self, plan_id: str) -> Candidate:
        """Return what a plan that `plan` returned was made of."""
        return self._made_of[plan_id]


def _finish(
    candidate: Candidate,
    question: Question,
    cache: ModelCache,
    known: KnownRuns,
    next_best: NextBest,
) -> Plan | None:
    """Return the whole plan of a candidate, its memory checked by replaying the allocator."""
    first = candidate
    candidate, memory = _that_fits(candidate, cache, next_best)
    if candidate is not first and candidate.breaks(question.money) is not None:
        # Its limits were asked of the first one, which is faster.
        return None
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


def _that_fits(
    candidate: Candidate, cache: ModelCache, next_best: NextBest
) -> tuple[Candidate, RankMemory]:
    """Return a candidate, or the fastest other variant whose memory is not short when replayed.

    Where none is found, the variant with the smallest peak: its chance to run out is told.
    """
    memory = memory_parts(cache, candidate.setup)
    if _is_roomy(cache, candidate, memory, next_best.max_oom):
        return candidate, memory
    short, smallest = TooLarge.of([candidate]), (candidate, memory)
    tries = 0
    for other in next_best.of(candidate):
        if short.holds(other):
            continue
        memory = memory_parts(cache, other.setup)
        if _is_roomy(cache, other, memory, next_best.max_oom):
            return other, memory
        short.add(other)
        if memory.peak_bytes.item() < smallest[1].peak_bytes.item():
            smallest = other, memory
        tries += 1
        if tries == MOST_TRIES:
            break
    return smallest


def _is_roomy(cache: ModelCache, candidate: Candidate, memory: RankMemory, max_oom: float) -> bool:
    """Return whether memory is not short, nor likely to run out where safe plans were found."""
    site, setup = candidate.site, candidate.setup
    if not is_roomy(cache, site, setup, memory):
        return False
    return candidate.is_risky or is_safe(cache, site, setup, memory, max_oom=max_oom)
