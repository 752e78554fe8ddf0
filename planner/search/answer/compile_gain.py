"""What torch.compile would gain on the recommended plan, where the file does not compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from ....catalog.text.money import format_money
from ....catalog.text.quantity import format_duration
from ....catalog.units import SECONDS_PER_HOUR
from ...plan.answer.answer_parts import CompileGain
from ...plan.plan import Plan, WholeJob
from ...plan.question import Question
from ...predict.kept.model_cache import ModelCache
from ...predict.step_time import planned_step_s
from ...software.compile_time import compiles_too_long
from ..candidate import Candidate
from ..machines.runs_here import is_run
from .infeasible import rented

LEAST_CUT = 0.15
"""Share of the time from which it is worth a line. A judgement."""
NEAREST = 8
"""Candidates outside the limits, by cost and by time, of which the compiled step is predicted."""


def compile_gain(
    plan: Plan,
    candidate: Candidate,
    question: Question,
    cache: ModelCache,
    plan_of: Callable[[Candidate], Plan | None],
) -> CompileGain | None:
    """Return what compiling gains on the machines of a plan; None where it is little or was asked.

    The compiled step is predicted from the same traced kernels, in some milliseconds. Its memory is
    replayed only where it is that much faster.

    Args:
        plan: the recommended one.
        candidate: what it was made of.
        question: what was asked; who named a stack, or compiling, knows of it.
        cache: the model.
        plan_of: finishes a candidate; None where it does not fit after all.
    """
    compiled = _compiled(candidate, question, cache)
    if compiled is None or plan.stack != "torch-eager":
        return None
    if compiled.step_s > (1 - LEAST_CUT) * planned_step_s(cache, candidate.site, candidate.setup):
        return None
    found = plan_of(compiled)
    if found is None or plan.whole_job is None or found.whole_job is None:
        return None
    before, after = plan.whole_job, found.whole_job
    is_limited = plan.run is not None and plan.run.limited_by is not None
    times = plan.step_time_s.value / found.step_time_s.value
    times *= found.global_batch / plan.global_batch
    if not is_limited:
        times = before.hours / after.hours
    if 1 / times > 1 - LEAST_CUT:
        return None
    return CompileGain(
        times_as_fast=times,
        hours=after.hours,
        usd=None if is_limited or after.usd is None else after.usd + after.beside_usd,
    )


def kept_by_compiling(
    candidates: Sequence[Candidate],
    question: Question,
    cache: ModelCache,
    plan_of: Callable[[Candidate], Plan | None],
) -> str | None:
    """Return a sentence on what would keep to the limits if it was compiled, where nothing does.

    Only the nearest are looked at: the cheapest and the fastest of those that gpuplan runs.

    Args:
        candidates: those that break a limit.
        question: what was asked.
        cache: the model.
        plan_of: finishes a candidate with its memory replayed; None where it does not fit.
    """
    if question.asks_for_work:
        return None
    run = [one for one in candidates if is_run(one, cache.profile)]
    near = [
        *sorted(run, key=lambda one: one.usd)[:NEAREST],
        *sorted(run, key=lambda one: one.seconds)[:NEAREST],
    ]
    compiled = [_compiled(one, question, cache) for one in near]
    kept = [one for one in compiled if one is not None and one.breaks(question.money) is None]
    for least in sorted(kept, key=lambda one: one.usd):
        job = _kept_job(plan_of(least), question)
        if job is not None and job.usd is not None:
            usd, hours = format_money(job.usd), format_duration(job.hours)
            return (
                f"With torch.compile (--compile) {rented(least)} takes about {usd}, {hours}:"
                " within what you gave."
            )
    return None


def _kept_job(plan: Plan | None, question: Question) -> WholeJob | None:
    """Return the job of a plan that fits as safely as is asked and keeps to the limits."""
    job = None if plan is None else plan.whole_job
    if plan is None or job is None or job.usd is None:
        return None
    money = question.money
    is_late = money.deadline_s is not None and job.hours * SECONDS_PER_HOUR > money.deadline_s
    usd = job.usd + job.beside_usd
    is_dear = money.budget_usd is not None and usd > Decimal(money.budget_usd)
    is_risky = plan.p_oom is not None and plan.p_oom > money.max_oom
    return None if is_late or is_dear or is_risky else job


def _compiled(candidate: Candidate, question: Question, cache: ModelCache) -> Candidate | None:
    """Return a candidate with its step compiled; None where it cannot well be, or was asked for."""
    asked = question.choices
    is_eager = candidate.base.stack == "torch-eager"
    if asked.compile is not None or asked.stack is not None or not is_eager:
        return None
    if not candidate.one_node.accelerator.can_compile:
        return None
    base = replace(candidate.base, stack="torch-compile", compile=True)
    compiled = replace(candidate, base=base)
    if compiles_too_long(cache.profile, compiled.setup):
        return None
    return replace(compiled, step_s=planned_step_s(cache, compiled.site, compiled.setup))
