"""The question to the planner: the work, the machines, the layout, the money."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Literal, get_args

from ...catalog.errors import UsageError, did_you_mean
from ...catalog.vocabulary import Offloaded, Precision, PurchaseWish, Recompute, Stack
from .layout import Layout

Sort = Literal["cost", "time", "throughput", "memory", "price"]


@dataclass(frozen=True, kw_only=True)
class Work:
    """How much is to be trained; at most one of `tokens`, `samples`, `epochs`, `steps` is given."""

    tokens: float | None = None
    samples: float | None = None
    epochs: float | None = None
    dataset_size: int | None = None
    steps: int | None = None
    global_batch: int | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            _refuse_no_amount(one.name, getattr(self, one.name))


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
                _refuse_text(one.name, getattr(self, one.name))
        _refuse_no_amount("max_nodes", self.max_nodes)


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What is fixed of the layout; an empty tuple leaves the planner free."""

    layouts: tuple[Layout, ...] = ()
    micro_batches: tuple[int, ...] = ()
    grad_accums: tuple[int, ...] = ()
    precisions: tuple[Precision, ...] = ()
    recomputes: tuple[Recompute, ...] = ()
    stack: Stack | None = None
    compile: bool | None = None
    optimizer: str | None = None
    offload: tuple[Offloaded, ...] | None = None
    """What is kept in host memory; None: nothing, unless nothing else fits."""

    def __post_init__(self) -> None:
        for name in ("layouts", "micro_batches", "grad_accums", "precisions", "recomputes"):
            _refuse_text(name, getattr(self, name))
        _refuse_text("offload", self.offload)


@dataclass(frozen=True, kw_only=True)
class Money:
    """Limits and the way of buying."""

    deadline_s: float | None = None
    budget_usd: Decimal | None = None
    purchase: PurchaseWish = "on-demand"
    sort: Sort | None = None

    def __post_init__(self) -> None:
        _refuse_no_amount("deadline_s", self.deadline_s)
        _refuse_no_amount("budget_usd", self.budget_usd)
        _refuse_other_word("purchase", self.purchase, get_args(PurchaseWish))
        if self.sort is not None:
            _refuse_other_word("sort", self.sort, get_args(Sort))


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question to the planner."""

    work: Work = field(default_factory=Work)
    machine: Machine = field(default_factory=Machine)
    choices: Choices = field(default_factory=Choices)
    money: Money = field(default_factory=Money)
    all_variants: bool = False
    vs_cpu: bool = False
    top: int | None = None


def _refuse_no_amount(name: str, value: object) -> None:
    """Raise UsageError for what is no number above zero; None is no amount, and may be."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not value > 0:
        raise UsageError(
            f"{name}={value!r} is not a number above zero.",
            fix=f"give a number, such as {name}=1000.",
        )


def _refuse_text(name: str, value: object) -> None:
    """Raise UsageError for one word where several are taken: its letters would be the items."""
    if isinstance(value, str):
        raise UsageError(
            f"{name}={value!r} is one word, and several are taken.",
            fix=f"write {name}=({value!r},).",
        )


def _refuse_other_word(name: str, value: str, words: tuple[str, ...]) -> None:
    """Raise UsageError for a word that is none of these."""
    if value not in words:
        raise UsageError(
            f"{name}={value!r} is not one of {', '.join(words)}.{did_you_mean(str(value), words)}",
            fix="take one of them.",
        )
