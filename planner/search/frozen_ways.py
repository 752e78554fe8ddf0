"""In which precisions a model with frozen parameters is tried on a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...catalog.errors import UsageError
from ...catalog.text.quantity import format_count
from ...catalog.types import Accelerator
from ...catalog.vocabulary import FrozenChoice, FrozenPrecision, Precision, Stack
from ...profiles.profile import Profile
from ..plan.layout import Layout
from ..plan.plan import Plan
from ..plan.question import Choices
from ..plan.setup import Setup
from ..software.frozen_base import why_not_kept
from .candidate import Candidate

Way = tuple[Precision, FrozenPrecision | None]
"""The precision, and how frozen parameters are kept; None as the precision says."""
WORTH_NF4 = 1.1
"""How many times as fast a 4-bit base must train to be proposed where another fits. A judgement."""
KEPT_AS: dict[FrozenChoice, FrozenPrecision | None] = {"fp32": None, "bf16": "bf16", "nf4": "nf4"}


def refuse_nothing_frozen(choices: Choices, profile: Profile) -> None:
    """Refuse a precision of frozen parameters where a model has none, or hardly any.

    Raises:
        UsageError: it has not.
    """
    if not any(KEPT_AS[word] for word in choices.frozen_precisions) or profile.is_mostly_frozen:
        return
    raise UsageError(
        f"--frozen-precision {','.join(choices.frozen_precisions)} is given, and"
        f" {profile.trainable_parameters:,} of {profile.parameters:,} parameters of {profile.name}"
        " are trained.",
        fix="leave it out, or freeze the base: --lora r=16 for an hf: model, examples/lora.py for"
        " one of your own.",
    )


def frozen_notes(choices: Choices, profile: Profile, plans: Sequence[Plan]) -> Iterator[str]:
    """Yield how the plans keep frozen parameters, where nobody asked for that."""
    kept = sorted({one.frozen_precision for one in plans if one.frozen_precision is not None})
    if choices.frozen_precisions or not kept:
        return
    yield (
        f"all but {format_count(profile.trainable_parameters)} of"
        f" {format_count(profile.parameters)} parameters are frozen: plans with"
        f" frozen={' or frozen='.join(kept)} keep them so (--frozen-precision)"
    )


def ways_to_try(
    accelerator: Accelerator,
    stack: Stack,
    precisions: Sequence[Precision],
    profile: Profile,
    choices: Choices,
) -> list[Way]:
    """Return every precision with every way of keeping frozen parameters that a device can run.

    The base of a model that is mostly frozen is tried in 16 and in 4 bits too, unless somebody
    said how it is kept: the precision of a run says in what is computed.

    Args:
        accelerator: the device.
        stack: the software.
        precisions: those to try on it.
        profile: the model.
        choices: what was asked for.
    """
    words: Sequence[FrozenChoice] = choices.frozen_precisions or ("fp32",)
    is_free = not choices.frozen_precisions
    if is_free and profile.is_mostly_frozen and "frozen16" in profile.numerics():
        words = ("fp32", "bf16", "nf4")
    return [
        (precision, KEPT_AS[word])
        for precision in precisions
        for word in words
        if _can(accelerator, stack, precision, KEPT_AS[word])
    ]


def without_needless_nf4(found: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates without 4-bit bases that are hardly faster than others there.

    Quantised weights are no longer those that were published, so they are proposed where they make
    a model fit, or trained at least `WORTH_NF4` times as fast on the same machines.
    """
    others: dict[tuple[int, int], Candidate] = {}
    for one in found:
        key = (id(one.choice), one.nodes)
        if one.base.frozen_precision != "nf4" and not one.is_risky:
            others[key] = min(others.get(key, one), one, key=_sample_s)
    kept: list[Candidate] = []
    more: dict[int, int] = {}
    for one in found:
        other = others.get((id(one.choice), one.nodes))
        is_4_bit = one.base.frozen_precision == "nf4"
        if is_4_bit and other is not None and _sample_s(other) <= WORTH_NF4 * _sample_s(one):
            more[id(other)] = more.get(id(other), 0) + one.variants_that_fit
        else:
            kept.append(one)
    return [
        replace(one, variants_that_fit=one.variants_that_fit + more[id(one)])
        if id(one) in more
        else one
        for one in kept
    ]


def _sample_s(one: Candidate) -> float:
    return one.step_s / one.global_batch


def keeps_frozen(layout: Layout, accelerator: Accelerator, base: Setup) -> bool:
    """Return whether ranks of a layout can keep frozen parameters as a setup says."""
    return why_not_kept(replace(base, layout=layout), accelerator) is None


def _can(
    accelerator: Accelerator, stack: Stack, precision: Precision, frozen: FrozenPrecision | None
) -> bool:
    one = Setup(
        layout=Layout(), precision=precision, micro_batch=1, stack=stack, frozen_precision=frozen
    )
    return why_not_kept(one, accelerator) is None
