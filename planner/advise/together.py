"""Everything free on the same machine at once, with the risks of every single change in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...catalog.snapshot import Catalogue
from ..plan.plan import Plan
from .answer import Change
from .changes import Proposal, proposals, seen_at_once
from .judgement import is_risky, judged
from .other_machines import everything_free, not_run_risk
from .printed_options import all_options
from .snippets import RECOMPUTE_LINES
from .time_and_cost import cost_of
from .today.setting import Replanner, Setting, fits

OUTSIDE = ("machine", "global_batch", "optimizer", "input", "attention")
"""Kinds of changes that are not free in it, so that it need not be cheaper than they are."""
PARTS = ("layout", "precision", "frozen_precision", "recompute", "compile", "offload")
"""What of a setup is free in it, beside the micro-batch."""


def together(
    setting: Setting,
    today: Plan,
    replanner: Replanner,
    catalogue: Catalogue,
    changes: Sequence[Change],
    *,
    accepted: float,
) -> Change | None:
    """Return everything free on the same machine, where that beats every single change there.

    Args:
        setting: today's.
        today: its plan.
        replanner: with the model, the work and the way of buying.
        catalogue: offers and devices.
        changes: the single ones.
        accepted: the largest chance of running out of memory with which a single change counts.
    """
    plan = everything_free(setting, today, replanner, catalogue)
    if plan is None:
        return None
    parts = list(_parts(plan, setting, replanner))
    leaves_out = replanner.freest is not replanner.profile
    proposal = Proposal(
        kind="together",
        text=f"{plan.string} without the file's own recompute" if leaves_out else plan.string,
        setting=setting,
        risks=(
            "several things change at once: make them one by one",
            *not_run_risk(plan, today),
            *dict.fromkeys(risk for part in parts for risk in part.risks),
        ),
        lines=(*(RECOMPUTE_LINES["none"] if leaves_out else ()), all_options(plan, setting)),
        alters_training=any(part.alters_training for part in parts),
    )
    change = judged(proposal, plan, today, max_oom=replanner.money.max_oom)
    beaten = _beats(plan, changes, accepted)
    return change if beaten and change.verdict in ("makes_it_fit", "saves") else None


def _beats(plan: Plan, changes: Sequence[Change], accepted: float) -> bool:
    """Return whether a plan costs less than every single change that fits."""
    single = [
        one.plan
        for one in changes
        if one.kind not in OUTSIDE and fits(one.plan) and not is_risky(one, accepted)
    ]
    costs = [cost.value for one in single if (cost := cost_of(one)) is not None]
    own = cost_of(plan)
    return own is not None and all(own.value < cost for cost in costs)


def _parts(plan: Plan, today: Setting, replanner: Replanner) -> Iterator[Proposal]:
    """Yield the single changes that a plan is made of, as far as one of them is proposed."""
    profile = replanner.profile
    for one in proposals(today, profile, fits=False, waits=False):
        if one.kind not in ("micro_batch", "global_batch", "optimizer") and _is_part(
            one.setting, plan, today
        ):
            yield one
    if plan.micro_batch != today.setup.micro_batch:
        size = plan.micro_batch
        yield Proposal(
            kind="micro_batch",
            text=f"micro-batch {today.setup.micro_batch:,} → {size:,}",
            setting=today,
            risks=tuple(f"{what} {size:,} samples at a time" for what in seen_at_once(profile)),
            alters_training=profile.mixes_samples,
        )


def _is_part(changed: Setting, plan: Plan, today: Setting) -> bool:
    """Return whether a plan has all that a changed setting has and today's has not."""
    if replace(changed, setup=today.setup) != today:
        return False  # A change of the model itself, such as the order of memory.
    now, then = _choices(today), _choices(changed)
    planned = {name: getattr(plan, name) for name in PARTS} | {"offload": set(plan.offloaded)}
    differing = [name for name in PARTS if now[name] != then[name]]
    return bool(differing) and all(then[name] == planned[name] for name in differing)


def _choices(setting: Setting) -> Mapping[str, object]:
    chosen = {name: getattr(setting.setup, name) for name in PARTS}
    return chosen | {"offload": set(setting.setup.offload)}
