"""The batch of today's setting where neither the question nor the file says one."""

from __future__ import annotations

from dataclasses import replace

from ....profiles.profile import Profile
from ...cost.run_cost import given_samples
from ...plan.answer.asked import AskedBatch
from ...plan.plan import Plan
from ...plan.question import Question
from ...search.batch_rule import global_batch_of
from .setting import Replanner, Setting, fits


def batch_by_rule(question: Question, profile: Profile) -> AskedBatch | None:
    """Return the global batch that `estimate` would assume; None where a batch is said.

    A micro-batch of one, or of a sample for each rank, is what nobody trains with.
    """
    work, choices = question.work, question.choices
    said = (
        work.global_batch,
        work.global_batch_tokens,
        profile.default_micro_batch,
        *choices.micro_batches,
        *choices.grad_accums,
    )
    if any(one is not None for one in said):
        return None
    return global_batch_of(profile, work, given_samples(work, profile.tokens_per_sample))


def accumulated_until_it_fits(
    setting: Setting, plan: Plan, replanner: Replanner
) -> tuple[Setting, Plan]:
    """Return the setting with the largest micro-batch that fits, of the same global batch.

    Where not even one sample fits, it is that of the smallest, which misses by least.
    """
    whole = setting.setup.micro_batch
    smaller, planned = setting, plan
    for accum in (one for one in range(1, whole + 1) if whole % one == 0):
        setup = replace(setting.setup, micro_batch=whole // accum, grad_accum=accum)
        smaller = replace(setting, setup=setup)
        planned = plan if accum == 1 else replanner.plan(smaller)
        if fits(planned):
            break
    return smaller, planned


def assumed_text(batch: AskedBatch, setting: Setting) -> str:
    """Return what was taken for the batch, and why, for the head of the answer."""
    setup = setting.setup
    accumulated = f", accumulation {setup.grad_accum:,}" if setup.grad_accum > 1 else ""
    return f"micro-batch {setup.micro_batch:,}{accumulated}, for a global batch of {batch.rule}"
