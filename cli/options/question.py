"""The question for the planner, made from the options of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypedDict

from ...catalog.errors import UsageError
from ...catalog.vocabulary import (
    OFFLOADABLE,
    RECOMPUTES,
    FrozenChoice,
    Offloaded,
    Precision,
    PurchaseWish,
    Recompute,
    Stack,
)
from ...planner.plan.layout import Layout
from ...planner.plan.question import By, Choices, Machine, Money, Question, Sort, Work
from ...planner.plan.setup import ReduceDtype
from .shared import parse_cluster
from .values.amounts import ALL, Batch

DEFAULT_TOP = 10
AMOUNTS = ("tokens", "samples", "epochs", "steps")


@dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """What the options of `gpuplan estimate` hold that make up the question."""

    tokens: float | None
    samples: float | None
    epochs: float | None
    dataset_size: int | None
    dataset_bytes: float | None
    dataset_at: str | None
    eval_every: int | None
    eval_samples: int | None
    steps: int | None
    global_batch: Batch | None
    critical_batch: float | None
    provider: tuple[str, ...]
    region: tuple[str, ...]
    jurisdiction: tuple[str, ...]
    accelerator: tuple[str, ...]
    instance: tuple[str, ...]
    nodes: tuple[int, ...]
    cluster: str | None
    """Machines in one word: 4xp5.48xlarge or 4xH100:8."""
    max_nodes: int
    layout: tuple[Layout, ...]
    micro_batch: tuple[int, ...]
    grad_accum: tuple[int, ...]
    precision: tuple[Precision, ...]
    recompute: tuple[str, ...]
    """Policies; "full:10" recomputes ten of the layers."""
    frozen_precision: tuple[FrozenChoice, ...]
    reduce_dtype: ReduceDtype | None
    compile: bool | None
    stack: Stack | None
    optimizer: str | None
    offload: tuple[str, ...]
    deadline: float | None
    """Seconds."""
    budget: Decimal | None
    """US dollars."""
    purchase: PurchaseWish
    sort: Sort | None
    max_oom_risk: float
    by: By | None
    top: int | None
    """`ALL`, a number, or None where none was given."""
    all_variants: bool
    runnable: bool
    vs_cpu: bool


def question_of(options: QuestionOptions, *, is_read: bool = False) -> Question:
    """Return the question that the options ask.

    Args:
        options: as they were typed.
        is_read: whether people read the answer, who want a few rows unless they say how many.

    Raises:
        UsageError: Options contradict each other.
    """
    _refuse_half_given(options)
    return Question(
        work=_work_of(options),
        machine=_machine_of(options),
        choices=Choices(
            layouts=options.layout,
            micro_batches=options.micro_batch,
            grad_accums=options.grad_accum,
            precisions=options.precision,
            **_recompute_of(options.recompute),
            frozen_precisions=options.frozen_precision,
            reduce_dtype=options.reduce_dtype,
            stack=options.stack,
            compile=options.compile,
            optimizer=options.optimizer,
            offload=offload_of(options.offload),
        ),
        money=Money(
            deadline_s=options.deadline,
            budget_usd=options.budget,
            purchase=options.purchase,
            sort=options.sort,
            max_oom=options.max_oom_risk,
        ),
        all_variants=options.all_variants,
        runnable=options.runnable,
        vs_cpu=options.vs_cpu,
        top=_top(options, is_read=is_read),
        by=options.by,
    )


class _Recompute(TypedDict):
    recomputes: tuple[Recompute, ...]
    recompute_layers: int | None


def _recompute_of(given: tuple[str, ...]) -> _Recompute:
    """Return the policies, and how many layers "full:10" says.

    Raises:
        UsageError: a number of layers stands beside another policy.
    """
    words = [text.partition(":") for text in given]
    if len(given) > 1 and any(number for _, _, number in words):
        raise UsageError(
            f"--recompute {','.join(given)}: a number of layers is given for one policy alone.",
            fix="give the policies without numbers: what lies between is searched.",
        )
    policies: tuple[Recompute, ...] = tuple(
        one for one in RECOMPUTES if one in {word for word, _, _ in words}
    )
    number = words[0][2] if words else ""
    return {"recomputes": policies, "recompute_layers": int(number) if number else None}


def _refuse_half_given(options: QuestionOptions) -> None:
    """Raise UsageError for two amounts of work, or for what needs one and has none."""
    given = [f"--{name}" for name in AMOUNTS if getattr(options, name) is not None]
    if len(given) > 1:
        raise UsageError(
            f"{' and '.join(given)} are given; the amount of work is one of them.",
            fix="keep one.",
        )
    if options.epochs is not None and options.dataset_size is None:
        raise UsageError(
            "--epochs is given without the size of the data set.",
            fix="add --dataset-size with its number of samples.",
        )
    if not given and options.dataset_size is not None and options.budget is None:
        raise UsageError(
            "--dataset-size is given without an amount of work.",
            fix="add --epochs, the passes over it, or leave it out.",
        )
    if not given and options.deadline is not None and options.budget is None:
        raise UsageError(
            "--deadline is given without an amount of work.",
            fix="add --tokens, --samples, --epochs or --steps; or --budget, and the answer is how"
            " much can be trained within both.",
        )


def _work_of(options: QuestionOptions) -> Work:
    """Return the amount of work, and the batch in the unit it was given in."""
    batch = options.global_batch or Batch()
    return Work(
        tokens=options.tokens,
        samples=options.samples,
        epochs=options.epochs,
        steps=options.steps,
        dataset_size=options.dataset_size,
        dataset_bytes=options.dataset_bytes,
        dataset_at=options.dataset_at,
        eval_every=options.eval_every,
        eval_samples=options.eval_samples,
        global_batch=batch.samples,
        global_batch_tokens=batch.tokens,
        critical_batch=options.critical_batch,
    )


def _top(options: QuestionOptions, *, is_read: bool) -> int | None:
    """Return how many plans are wanted; None: the best of every group."""
    if options.top is not None:
        return None if options.top == ALL else options.top
    return DEFAULT_TOP if is_read and not options.all_variants else None


def offload_of(words: tuple[str, ...]) -> tuple[Offloaded, ...] | None:
    """Return what is to be kept in host memory; None where the planner may choose.

    Raises:
        UsageError: "none" stands beside other words.
    """
    if not words:
        return None
    if "none" in words and len(words) > 1:
        raise UsageError("--offload says none, and something else.", fix="keep one of them.")
    return tuple(one for one in OFFLOADABLE if one in words)


def _machine_of(options: QuestionOptions) -> Machine:
    named: dict[str, tuple[Any, ...]] = {
        "accelerator": options.accelerator,
        "instance": options.instance,
        "nodes": options.nodes,
    }
    if options.cluster is not None:
        if any(named.values()):
            raise UsageError(
                "--cluster is given beside --accelerator, --instance or --nodes.",
                fix="keep one way of naming the machines.",
            )
        named.update(parse_cluster(options.cluster))
    return Machine(
        providers=options.provider,
        regions=options.region,
        jurisdictions=options.jurisdiction,
        accelerators=named["accelerator"],
        instances=named["instance"],
        nodes=named["nodes"],
        max_nodes=options.max_nodes,
    )
