"""What torch.compile would gain on the recommended plan, where the file does not compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..plan.plan import CompileGain, Plan
from ..plan.question import Question
from ..predict.model_cache import ModelCache
from ..predict.step_time import planned_step_s
from .candidate import Candidate

LEAST_CUT = 0.2
"""Share of the time from which it is worth a line. A judgement."""


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
    asked = question.choices
    if asked.compile is not None or asked.stack is not None or plan.stack != "torch-eager":
        return None
    if not candidate.one_node.accelerator.can_compile:
        return None
    base = replace(candidate.base, stack="torch-compile", compile=True)
    compiled = replace(candidate, base=base)
    step_s = planned_step_s(cache, compiled.site, compiled.setup)
    if step_s > (1 - LEAST_CUT) * planned_step_s(cache, candidate.site, candidate.setup):
        return None
    found = plan_of(replace(compiled, step_s=step_s))
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
        usd=None if is_limited or after.usd is None else after.usd + after.dataset_usd,
    )
