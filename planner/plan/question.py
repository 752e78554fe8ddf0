"""The question to the planner: the work, the machines, the layout, the money."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Literal, get_args

from ...catalog.errors import UsageError
from ...catalog.vocabulary import (
    FROZEN_CHOICES,
    OFFLOADABLE,
    OPTIMIZERS,
    PRECISIONS,
    RECOMPUTES,
    STACKS,
    FrozenChoice,
    Offloaded,
    Precision,
    PurchaseWish,
    Recompute,
    Stack,
)
from .layout import Layout
from .refusals import (
    refuse_no_amount,
    refuse_no_amounts,
    refuse_no_tuple,
    refuse_other_type,
    refuse_other_word,
)
from .setup import REDUCE_DTYPES, ReduceDtype

Sort = Literal["cost", "time", "throughput", "memory", "price", "carbon"]
By = Literal["accelerator", "provider", "instance", "region"]
HIDDEN_ABOVE = 5.0
"""Where a number of plans was asked for, those that cost more than so many times the cheapest are
not among them."""
MOST_OOM = 0.02
"""Largest chance of running out of memory that a plan may have to come first."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """How much is to be trained; at most one of `tokens`, `samples`, `epochs`, `steps` is given."""

    tokens: float | None = None
    samples: float | None = None
    epochs: float | None = None
    dataset_size: int | None = None
    steps: int | None = None
    global_batch: int | None = None
    """Samples of one optimizer step."""
    global_batch_tokens: float | None = None
    """The same in tokens; at most one of the two is given."""
    critical_batch: float | None = None
    """Samples. The amount of work is then what small batches need, and a batch of B samples trains
    on 1 + B/critical times as much: McCandlish et al. 2018, arXiv:1812.06162."""
    dataset_bytes: float | None = None
    """Of the data set as it is read: kept beside the machines, and moved there."""
    dataset_at: str | None = None
    """Where it is now, "aws/us-east-1"; None: it is not moved."""

    eval_every: int | None = None
    """Steps from one evaluation to the next; None: it is not said whether any is made."""
    eval_samples: int | None = None
    """On which each is made; None: not known."""
    about_samples: float | None = None
    """Where no amount is given: about how many a budget trains, from which rules choose a batch."""
    from_weights: bool = False
    """Whether there are trained weights to start from, so that a short training is a fine-tune."""

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.name not in ("dataset_at", "from_weights"):
                refuse_no_amount(one.name, getattr(self, one.name))
        for name in ("tokens", "samples"):
            amount = getattr(self, name)
            if amount is not None and amount < 1:
                raise UsageError(
                    f"{name}={amount!r} is less than one of them.",
                    fix=f"give how many {name} are trained on in all, such as 300M.",
                )
        self._refuse_two_amounts()
        if self.dataset_at is not None and self.dataset_bytes is None:
            raise UsageError(
                "Where the data set is was given, and not how large it is.",
                fix="add --dataset-bytes, such as 500GB.",
            )
        if self.eval_samples is not None and self.eval_every is None:
            raise UsageError(
                "On how many samples is evaluated was given, and not how often.",
                fix="add --eval-every with the steps from one evaluation to the next, such as 500.",
            )
        place = self.dataset_place
        if place is not None and (not all(place) or "/" in place[1]):
            raise UsageError(
                f"dataset_at={self.dataset_at!r} is no place.",
                fix="give a provider and its region, such as aws/us-east-1.",
            )
        if self.global_batch is not None and self.global_batch_tokens is not None:
            raise UsageError(
                "The global batch is given in samples and in tokens.", fix="keep one of them."
            )
        if self.critical_batch is not None and self.steps is not None:
            raise UsageError(
                "A critical batch says how many steps are needed, and steps are given.",
                fix="give the work as tokens, samples or epochs.",
            )

    def _refuse_two_amounts(self) -> None:
        amounts = {"tokens": self.tokens, "samples": self.samples, "epochs": self.epochs}
        given = [name for name, value in (amounts | {"steps": self.steps}).items() if value]
        if len(given) > 1:
            raise UsageError(
                f"{' and '.join(given)} are given; the amount of work is one of them.",
                fix="keep one.",
            )

    @property
    def dataset_place(self) -> tuple[str, str] | None:
        """Provider and region where the data set is now; None: it is not moved."""
        if self.dataset_at is None:
            return None
        provider, _, region = self.dataset_at.partition("/")
        return provider.lower(), region


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Which offers and how many nodes are searched; an empty tuple means no restriction."""

    providers: tuple[str, ...] = ()
    """"all" adds marketplaces and providers that `launch` cannot reach."""
    regions: tuple[str, ...] = ()
    jurisdictions: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    """Canonical names, a family ("A100"), or with a count per node ("H100:8")."""
    instances: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    max_nodes: int = 64

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.name != "max_nodes":
                refuse_no_tuple(one.name, getattr(self, one.name))
        refuse_no_amounts("nodes", self.nodes)
        refuse_no_amount("max_nodes", self.max_nodes)


_WORDS: dict[str, tuple[str, ...]] = {
    "precisions": PRECISIONS,
    "recomputes": RECOMPUTES,
    "frozen_precisions": FROZEN_CHOICES,
    "offload": OFFLOADABLE,
}
"""What may be among the choices of each name."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What is fixed of the layout; an empty tuple leaves the planner free."""

    layouts: tuple[Layout, ...] = ()
    micro_batches: tuple[int, ...] = ()
    grad_accums: tuple[int, ...] = ()
    precisions: tuple[Precision, ...] = ()
    recomputes: tuple[Recompute, ...] = ()
    recompute_layers: int | None = None
    """With the one policy "full": how many layers are recomputed; None leaves it free, or all."""
    frozen_precisions: tuple[FrozenChoice, ...] = ()
    """How frozen parameters are kept; empty: where they are nearly all and the precision is free
    too, every way is tried, else as the precision says."""
    reduce_dtype: ReduceDtype | None = None
    """What FSDP reduces gradients in beside 16-bit layers; None: as the file's own
    MixedPrecisionPolicy says, else fp32."""
    stack: Stack | None = None
    compile: bool | None = None
    optimizer: str | None = None
    offload: tuple[Offloaded, ...] | None = None
    """What is kept in host memory; None: nothing, unless nothing else fits."""

    def __post_init__(self) -> None:
        for name in ("layouts", "micro_batches", "grad_accums"):
            refuse_no_tuple(name, getattr(self, name))
        for name, words in _WORDS.items():
            refuse_no_tuple(name, () if getattr(self, name) is None else getattr(self, name))
            for word in getattr(self, name) or ():
                refuse_other_word(name, word, words)
        for name in ("micro_batches", "grad_accums"):
            refuse_no_amounts(name, getattr(self, name))
        for layout in self.layouts:
            if not isinstance(layout, Layout):
                raise UsageError(
                    f"layouts: {layout!r} is no Layout.",
                    fix=f"write layouts=(gpuplan.parse_layout({str(layout)!r}),).",
                )
        if self.stack is not None:
            refuse_other_word("stack", self.stack, STACKS)
        if self.optimizer is not None:
            refuse_other_word("optimizer", self.optimizer, OPTIMIZERS)
        if self.reduce_dtype is not None:
            refuse_other_word("reduce_dtype", self.reduce_dtype, REDUCE_DTYPES)
        refuse_no_amount("recompute_layers", self.recompute_layers)
        if self.recompute_layers is not None and self.recomputes != ("full",):
            raise UsageError(
                f"recompute_layers={self.recompute_layers} goes with the recompute policy full.",
                fix='give recomputes=("full",).',
            )


@dataclass(frozen=True, kw_only=True)
class Money:
    """Limits and the way of buying."""

    deadline_s: float | None = None
    budget_usd: Decimal | None = None
    purchase: PurchaseWish = "on-demand"
    sort: Sort | None = None
    max_oom: float = MOST_OOM
    """Plans that may run out of memory with a larger chance come last, marked."""

    def __post_init__(self) -> None:
        refuse_no_amount("deadline_s", self.deadline_s)
        refuse_no_amount("budget_usd", self.budget_usd)
        refuse_other_word("purchase", self.purchase, get_args(PurchaseWish))
        if self.sort is not None:
            refuse_other_word("sort", self.sort, get_args(Sort))
        if not 0 < self.max_oom <= 1:
            raise UsageError(
                f"max_oom={self.max_oom!r} is no chance above 0 and up to 1.",
                fix="give a share such as 0.02.",
            )


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question to the planner."""

    work: Work = field(default_factory=Work)
    machine: Machine = field(default_factory=Machine)
    choices: Choices = field(default_factory=Choices)
    money: Money = field(default_factory=Money)
    all_variants: bool = False
    runnable: bool = False
    """Whether only plans are wanted that gpuplan's runner carries out."""
    vs_cpu: bool = False
    top: int | None = None
    """How many plans are wanted that run without a port; None: the best of every group. With it,
    plans above 5 times the cheapest are left out and counted."""
    by: By | None = None
    """What there is one plan for; None: each accelerator, or each provider and accelerator where a
    few providers are named."""

    def __post_init__(self) -> None:
        parts = {"work": Work, "machine": Machine, "choices": Choices, "money": Money}
        for name, wanted in parts.items():
            refuse_other_type(name, getattr(self, name), wanted)
        refuse_no_amount("top", self.top)
        if self.by is not None:
            refuse_other_word("by", self.by, get_args(By))

    @property
    def asks_for_work(self) -> bool:
        """Whether the answer is how much can be trained: there is a budget, and no amount."""
        work = self.work
        amounts = (work.tokens, work.samples, work.epochs, work.steps)
        return self.money.budget_usd is not None and all(one is None for one in amounts)
