"""The question to the planner: the work, the machines, the layout, the money."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from .layout import Layout
from .plan import Offloaded, Precision, RecomputeKind, Stack

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


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What is fixed of the layout; an empty tuple leaves the planner free."""

    layouts: tuple[Layout, ...] = ()
    micro_batches: tuple[int, ...] = ()
    grad_accums: tuple[int, ...] = ()
    precisions: tuple[Precision, ...] = ()
    recomputes: tuple[RecomputeKind, ...] = ()
    stack: Stack | None = None
    compile: bool | None = None
    optimizer: str | None = None
    offload: tuple[Offloaded, ...] | None = None
    """What is kept in host memory; None: nothing, unless nothing else fits."""


@dataclass(frozen=True, kw_only=True)
class Money:
    """Limits and the way of buying."""

    deadline_s: float | None = None
    budget_usd: Decimal | None = None
    purchase: Literal["on-demand", "spot", "any"] = "on-demand"
    sort: Sort | None = None


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
