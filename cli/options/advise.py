"""Today's setting, made from the options of `gpuplan advise`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Literal

from ...catalog.errors import UsageError
from ...catalog.vocabulary import FrozenChoice, Precision, Recompute, Stack
from ...planner.plan.layout import Layout
from ...planner.plan.question import Question
from .inputs import InputsOptions
from .question import QuestionOptions, question_of
from .values.amounts import Batch


@dataclass(frozen=True, kw_only=True)
class AdviseOptions(InputsOptions):
    """What the options of `gpuplan advise` hold."""

    tokens: float | None
    samples: float | None
    epochs: float | None
    dataset_size: int | None
    steps: int | None
    on: str | None
    """Accelerators of one machine: H100:8."""
    plan: str | None
    """Id of a kept plan."""
    instance: str | None
    nodes: int | None
    provider: tuple[str, ...]
    region: tuple[str, ...]
    curves: Path | None
    layout: Layout | None
    micro_batch: int | None
    grad_accum: int | None
    global_batch: Batch | None
    precision: Precision | None
    recompute: Recompute | None
    frozen_precision: FrozenChoice | None
    compile: bool | None
    stack: Stack | None
    optimizer: str | None
    offload: tuple[str, ...]
    purchase: Literal["on-demand", "spot", "any"]
    max_oom_risk: float
    top: int | None
    """`ALL`, a number, or None where none was given."""


SETTING = (
    ("on", "--on"),
    ("instance", "--instance"),
    ("nodes", "--nodes"),
    ("layout", "--layout"),
    ("micro_batch", "--micro-batch"),
    ("grad_accum", "--grad-accum"),
    ("global_batch", "--global-batch"),
    ("precision", "--precision"),
    ("recompute", "--recompute"),
    ("frozen_precision", "--frozen-precision"),
    ("compile", "--compile"),
    ("stack", "--stack"),
    ("optimizer", "--optimizer"),
    ("offload", "--offload"),
)
"""Options that a plan says already; providers and regions then limit the other machines."""


def setting_question(options: AdviseOptions) -> Question:
    """Return the question that names today's setting; with a plan it holds the work alone.

    Raises:
        UsageError: Options contradict each other, or no machine is named.
    """
    given = [flag for name, flag in SETTING if getattr(options, name) not in (None, ())]
    if options.plan is not None and given:
        raise UsageError(
            f"{', '.join(given)} {'is' if len(given) == 1 else 'are'} given beside --plan, which"
            " says all of the setting.",
            fix="keep --plan alone, or leave it out.",
        )
    machines = [flag for flag in given if flag in ("--on", "--instance")]
    if options.plan is None and len(machines) != 1:
        what = "Both --on and --instance are given" if machines else "No machine is given"
        raise UsageError(
            f"{what}; today's setting runs on one.",
            fix="give one of --on H100:8, --instance p5.48xlarge and --plan PLAN-ID.",
        )
    for flag, named in (("--on", options.on), ("--instance", options.instance)):
        _refuse_several(flag, named)
    return question_of(_listed(options))


def _refuse_several(flag: str, given: str | None) -> None:
    """Refuse a list of machines, before the model is traced."""
    names = [name.strip() for name in (given or "").split(",") if name.strip()]
    if len(names) > 1:
        raise UsageError(
            f"{flag} names {len(names)}: {', '.join(names)}. Today's setting runs on one.",
            fix=f"give one: {flag} {quote(names[0])}.",
        )


def _listed(options: AdviseOptions) -> QuestionOptions:
    """Return the options as `gpuplan estimate` has them, each choice a list of one or none."""
    return QuestionOptions(
        tokens=options.tokens,
        samples=options.samples,
        epochs=options.epochs,
        dataset_size=options.dataset_size,
        dataset_bytes=None,
        dataset_at=None,
        eval_every=None,
        eval_samples=None,
        steps=options.steps,
        global_batch=options.global_batch,
        critical_batch=None,
        provider=options.provider,
        region=options.region,
        jurisdiction=(),
        accelerator=_some(options.on),  # pyright: ignore[reportArgumentType]
        instance=_some(options.instance),  # pyright: ignore[reportArgumentType]
        nodes=_some(options.nodes),  # pyright: ignore[reportArgumentType]
        cluster=None,
        max_nodes=64,
        layout=_some(options.layout),  # pyright: ignore[reportArgumentType]
        micro_batch=_some(options.micro_batch),  # pyright: ignore[reportArgumentType]
        grad_accum=_some(options.grad_accum),  # pyright: ignore[reportArgumentType]
        precision=_some(options.precision),  # pyright: ignore[reportArgumentType]
        recompute=_some(options.recompute),  # pyright: ignore[reportArgumentType]
        frozen_precision=_some(options.frozen_precision),  # pyright: ignore[reportArgumentType]
        reduce_dtype=None,
        compile=options.compile,
        stack=options.stack,
        optimizer=options.optimizer,
        offload=options.offload,
        deadline=None,
        budget=None,
        purchase=options.purchase,
        sort=None,
        max_oom_risk=options.max_oom_risk,
        by=None,
        top=None,
        all_variants=False,
        runnable=False,
        vs_cpu=False,
    )


def _some(value: object) -> tuple[object, ...]:
    return () if value is None else (value,)
