"""The question as its answer repeats it, so that two answers can be told apart."""

from __future__ import annotations

from typing import Literal

from ...catalog.frozen import FrozenModel, Usd
from ...catalog.vocabulary import PurchaseWish

WorkKind = Literal["tokens", "samples", "epochs", "steps"]
BatchSource = Literal["option", "rule", "layout"]
"""Given, by the rule for this kind of model, or made by a micro-batch, accumulation and layout that
were all given."""


class AskedWork(FrozenModel):
    """How much is to be trained."""

    kind: WorkKind | None = None
    """As it was given; None where no amount was."""
    amount: float | None = None
    samples: float | None = None
    """What is trained on; with `critical_batch` more than was given."""
    tokens: float | None = None
    steps: int | None = None
    """Optimizer steps; None where plans differ in their global batch."""
    dataset_size: int | None = None
    critical_batch: float | None = None
    """Samples (McCandlish et al. 2018, arXiv:1812.06162)."""


class AskedBatch(FrozenModel):
    """The global batch that every plan has."""

    samples: int | None = None
    """None where each plan has its own."""
    tokens: float | None = None
    source: BatchSource
    rule: str | None = None
    """The rule in words, where one was followed: "1M tokens at 1.3B parameters"."""
    rule_source: str | None = None


class Limits(FrozenModel):
    """What a plan may take, cost and risk."""

    deadline_s: float | None = None
    budget_usd: Usd | None = None
    max_oom: float
    """Largest chance of running out of memory of the plans that come first."""


class AskedMachine(FrozenModel):
    """Which machines were asked for; an empty list is no restriction."""

    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    jurisdictions: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    max_nodes: int


class AskedQuestion(FrozenModel):
    """What was asked: the model, the work, the batch, the limits, the machines."""

    model: str
    params: dict[str, object] = {}
    work: AskedWork
    global_batch: AskedBatch
    limits: Limits
    machine: AskedMachine
    purchase: PurchaseWish
    from_settings: tuple[str, ...] = ()
    """Options that were not typed, but are set for every command (`gpuplan config`)."""
