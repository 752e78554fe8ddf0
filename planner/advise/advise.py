"""Change one thing of today's setting at a time, plan it anew, and say what that is worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ...catalog.snapshot import Catalogue
from ...catalog.vocabulary import FrozenPrecision
from ...profiles.curves.choice import USUAL_CURVES, CurveChoice
from ...profiles.profile import Profile
from ..goodput.own_stops import NO_OWN_STOPS, OwnStops
from ..plan.plan import Plan
from ..plan.question import Machine, Question
from ..search.answer.embedding_note import embedding_notes
from ..search.progress import Progress, untold
from ..software.compile_time import not_compiled_notes
from .answer import HELPING, Change
from .changes import Proposal, compiled_today, proposals
from .judgement import best_sizes, judged, ranked
from .oom_risk import accepted_risk, risk_notes
from .other_machines import other_machines
from .time_and_cost import time_of
from .today.assumed_batch import accumulated_until_it_fits, assumed_text, batch_by_rule
from .today.masked_attention import takes_a_mask
from .today.own_recompute import own_recompute_notes
from .today.setting import Replanner, Setting, fits
from .today.todays_setting import setting_of, work_of
from .together import together
from .wording import elsewhere, headline, pace_text


@dataclass(frozen=True, kw_only=True)
class AdviceOutcome:
    """Today's plan and the changes of it; `Advice` explains the fields."""

    headline: str
    elsewhere: str | None
    today: Plan
    today_fits: bool
    assumed: tuple[str, ...]
    changes: tuple[Change, ...]
    together: Change | None
    notes: tuple[str, ...]


def advise(
    today: Question,
    profile: Profile,
    catalogue: Catalogue,
    *,
    others: Machine | None = None,
    frozen: FrozenPrecision | None = None,
    causal_mask: str | None = None,
    curve_choice: CurveChoice = USUAL_CURVES,
    own_stops: OwnStops = NO_OWN_STOPS,
    on_progress: Progress = untold,
) -> AdviceOutcome:
    """Return what to change of a setting, one thing at a time, the best first.

    Args:
        today: the setting: one machine (instance type or accelerator), at most one of each choice,
            and the work, where it is known.
        profile: the traced model, with a trace for every precision that may be tried.
        catalogue: offers and devices.
        others: its providers, regions and jurisdictions limit the other machines that are looked
            at; None: as those of today's machine are limited.
        frozen: how the model's config keeps what is not trained, where the setting does not say.
        causal_mask: where the file makes the mask that its attention takes, where that is known to
            be a causal one.
        curve_choice: which measurements of devices the predictions rest on.
        own_stops: what stopped the user's own runs.
        on_progress: told how many of the changes are planned, and how the search for other machines
            goes on.

    Raises:
        UnsupportedError: today's setting cannot be predicted.
        UsageError: it is not one setting, or a name in it is unknown.
    """
    setting, assumed = setting_of(today, profile, catalogue, frozen=frozen)
    setting = replace(setting, choice=replace(setting.choice, own_stops=own_stops))
    work = work_of(today.work, setting)
    replanner = Replanner(
        profile,
        work=work,
        money=today.money,
        curve_choice=curve_choice,
        own_stops=own_stops,
        on_progress=on_progress,
    )
    plan = replanner.plan(setting)
    by_rule = batch_by_rule(today, profile)
    if by_rule is not None:
        setting, plan = accumulated_until_it_fits(setting, plan, replanner)
        assumed = (*assumed, assumed_text(by_rule, setting))
    max_oom = today.money.max_oom
    accepted = accepted_risk(plan, max_oom)
    found = _on_this_machine(setting, plan, replanner, accepted, causal_mask)
    machines = other_machines(setting, plan, replanner, catalogue, others or today.machine)
    judgements = (judged(*each, plan, max_oom=max_oom) for each in machines)
    found += [one for one in judgements if one.verdict in HELPING]
    changes = ranked(found, max_oom=accepted)
    everything = together(setting, plan, replanner, catalogue, changes, accepted=accepted)
    return AdviceOutcome(
        headline=headline(plan, changes, everything, today_fits=fits(plan)),
        elsewhere=elsewhere(changes),
        today=plan,
        today_fits=fits(plan),
        assumed=assumed,
        changes=changes,
        together=everything,
        notes=(
            *profile.notes,
            *risk_notes(plan, changes, max_oom),
            *own_recompute_notes(profile),
            *_attention_notes(profile),
            *(_mask_notes(setting, plan, replanner) if causal_mask is None else ()),
            *embedding_notes(profile, setting.setup),
            *_compile_notes(setting, profile),
        ),
    )


def _on_this_machine(
    setting: Setting, today: Plan, replanner: Replanner, accepted: float, causal_mask: str | None
) -> list[Change]:
    """Return the single changes on the same machine that can be predicted.

    Args:
        setting: today's.
        today: its plan.
        replanner: with the model, the work and the way of buying.
        accepted: the largest chance of running out of memory with which none comes later.
        causal_mask: where the file makes its causal mask.
    """
    waits = bool(today.breakdown_s.input_wait)
    wanted = proposals(
        setting, replanner.profile, fits=fits(today), waits=waits, causal_mask=causal_mask
    )
    max_oom = replanner.money.max_oom
    found = [judged(*one, today, max_oom=max_oom) for one in _planned(replanner, wanted)]
    return best_sizes(found, max_oom=accepted)


def _planned(replanner: Replanner, wanted: Iterable[Proposal]) -> Iterator[tuple[Proposal, Plan]]:
    """Yield the changes that can be predicted, with their plans."""
    several = list(wanted)
    for done, proposal in enumerate(several):
        replanner.on_progress("changing one thing at a time", done, len(several))
        plan = replanner.try_plan(proposal.setting)
        if plan is not None:
            yield proposal, plan


def _mask_notes(setting: Setting, today: Plan, replanner: Replanner) -> Iterator[str]:
    """Yield what causal attention would do where nobody knows what the mask hides."""
    if not takes_a_mask(replanner.profile):
        return
    causal = replanner.try_plan(replace(setting, causal_attention=True))
    if causal is not None and fits(today) and time_of(today).differs(time_of(causal)):
        yield (
            "only if the mask of attention is a causal one, which the file does not show, does"
            f" is_causal=True keep the training: {pace_text(causal, today)} then"
        )


def _compile_notes(setting: Setting, profile: Profile) -> Iterator[str]:
    """Yield why compiling is not among the changes, where it takes too long to compile."""
    if setting.setup.stack == "torch-eager" and setting.choice.accelerator.can_compile:
        yield from not_compiled_notes(profile, compiled_today(setting).setup)


def _attention_notes(profile: Profile) -> Iterator[str]:
    """Yield that attention is not fused, where the step multiplies, normalises and multiplies."""
    kinds: set[str] = set()
    softmax = False
    for segment in profile.steps[0].segments:
        for kernel in segment.kernels:
            is_batched = kernel.kind == "gemm" and kernel.op in ("bmm", "baddbmm")
            kinds.add("batched gemm" if is_batched else kernel.kind)
            softmax = softmax or "softmax" in kernel.op
    if softmax and "batched gemm" in kinds and "attention" not in kinds:
        yield (
            "attention is written as product, softmax, product: fused attention"
            " (torch.nn.functional.scaled_dot_product_attention) moves less memory; what that saves"
            " is known once the file uses it"
        )
