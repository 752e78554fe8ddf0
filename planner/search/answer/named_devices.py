"""Why accelerators that a question names have no plan in its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....catalog.types import OLDEST_COMPUTE_CAPABILITY, Accelerator
from ....profiles.profile import Profile
from ...hardware.device import supported_precisions
from ...plan.plan import Plan
from ...plan.question import Question
from ..candidate import Candidate
from ..machines.offers import Market
from ..search_space import file_precision, precisions_for

MOST_NAMED = 4
"""Devices in a note."""


def devices_without_plan(
    question: Question,
    profile: Profile,
    market: Market,
    fitting: Iterable[Candidate],
    within: Iterable[Candidate],
    plans: Iterable[Plan],
) -> Iterator[str]:
    """Yield which of the devices that were asked for have no plan, and why, as one sentence.

    Args:
        question: what was asked.
        profile: the traced model.
        market: the machines that were asked for.
        fitting: all that fit as far as the search counts, whatever their cost and time.
        within: those of them that keep to the limits; an answer may have no room for them all.
        plans: those of the answer; where there are none, `infeasible` says what else is wrong.
    """
    if not (question.machine.accelerators or question.machine.instances):
        return
    shown = {plan.offer.accelerator for plan in plans}
    why = {one.name: why_not_trained(one) for one in market.untrainable}
    if shown:
        shown |= {one.one_node.accelerator.name for one in within}
        fits = {one.one_node.accelerator.name for one in fitting}
        asked = {one.accelerator.name: one.accelerator for one in market.choices}
        why |= {
            name: _why_none(device, question, profile, fits=name in fits)
            for name, device in asked.items()
        }
    missing = [name for name in sorted(why) if name not in shown]
    if missing:
        listed = "; ".join(f"{name}, {why[name]}" for name in missing[:MOST_NAMED])
        more = f"; and {len(missing) - MOST_NAMED} others" if len(missing) > MOST_NAMED else ""
        yield f"no plan is on {listed}{more}"


def why_not_trained(accelerator: Accelerator) -> str:
    """Return why nothing is planned on a device, or on what is sold of it, as a clause."""
    if accelerator.can_train:
        return "of which these machines hold a slice (vGPU)"
    if accelerator.vendor != "NVIDIA":
        return "which infers and does not train"
    return (
        f"whose compute capability {accelerator.compute_capability} is older than all that builds"
        f" of torch drive ({OLDEST_COMPUTE_CAPABILITY} and newer)"
    )


def _why_none(accelerator: Accelerator, question: Question, profile: Profile, *, fits: bool) -> str:
    if fits:
        return "where all that fits breaks a limit"
    choices = question.choices
    if not precisions_for(accelerator, profile, choices, fixed=False):
        asked = choices.precisions or (file_precision(profile) or "fp32",)
        able = ", ".join(supported_precisions(accelerator))
        return f"which has no units for {', '.join(asked)} (give --precision one of {able})"
    return "where nothing that was tried fits"
