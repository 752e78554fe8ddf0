"""The question as its answer repeats it, so that two answers can be told apart."""

from __future__ import annotations

from typing import Literal

from ....catalog.frozen import FrozenModel, Usd
from ....catalog.vocabulary import PurchaseWish
from ..question import Sort

WorkKind = Literal["tokens", "samples", "epochs", "steps"]
BatchSource = Literal["option", "rule", "layout"]
"""Given, by the rule for this kind of model, or made by a micro-batch, accumulation and layout that
were all given."""


class AskedWork(FrozenModel):
    """How much is to be trained."""

    kind: WorkKind | None = None
    """As it was given; None where no amount was."""
    amount: float | None = None
    """As it was given, in its own unit."""
    samples: float | None = None
    """What is trained on; with `critical_batch` more than was given."""
    tokens: float | None = None
    """The same in tokens; None for a model without tokens."""
    steps: int | None = None
    """Optimizer steps; None where plans differ in their global batch."""
    dataset_size: int | None = None
    """Samples of the data set."""
    dataset_bytes: float | None = None
    """Bytes of the data set."""
    dataset_at: str | None = None
    """Provider and region where it is now; None: it is not moved."""
    eval_every: int | None = None
    """Steps from one evaluation to the next; None: it was not said."""
    eval_samples: int | None = None
    """On which each is made; None: not known, and evaluation is assumed."""
    critical_batch: float | None = None
    """Samples (McCandlish et al. 2018, arXiv:1812.06162)."""


class AskedBatch(FrozenModel):
    """The global batch that every plan has."""

    samples: int | None = None
    """None where each plan has its own."""
    tokens: float | None = None
    """The same in tokens."""
    source: BatchSource
    """Where it is from."""
    rule: str | None = None
    """The rule in words, where one was followed: "1M tokens at 1.3B parameters"."""
    rule_source: str | None = None
    """Where the rule is from."""


class Limits(FrozenModel):
    """What a plan may take, cost and risk."""

    deadline_s: float | None = None
    """Seconds that the whole job may take."""
    budget_usd: Usd | None = None
    """US dollars that the whole job may cost."""
    max_oom: float
    """Largest chance of running out of memory, from 0 to 1, of the plans that come first."""


class AskedMachine(FrozenModel):
    """Which machines were asked for; an empty list is no restriction."""

    providers: tuple[str, ...] = ()
    """Sellers; "all" adds marketplaces."""
    regions: tuple[str, ...] = ()
    """As the providers name them."""
    jurisdictions: tuple[str, ...] = ()
    """eu, eu27, uk, or countries."""
    accelerators: tuple[str, ...] = ()
    """Names or families, some with a count per node."""
    instances: tuple[str, ...] = ()
    """Instance types."""
    nodes: tuple[int, ...] = ()
    """Numbers of nodes."""
    max_nodes: int
    """Most nodes that are tried."""


class AskedQuestion(FrozenModel):
    """What was asked: the model, the work, the batch, the limits, the machines."""

    model: str
    """Its name."""
    params: dict[str, object] = {}
    """What its functions were given."""
    param_rules: dict[str, str] = {}
    """Params that are as a rule has them, with the rule: how long the sequences of a config are
    that says no length."""
    work: AskedWork
    """How much is trained."""
    global_batch: AskedBatch
    """Of every plan."""
    limits: Limits
    """Of every plan."""
    machine: AskedMachine
    """Of every plan."""
    purchase: PurchaseWish
    """How machines are paid for."""
    sort: Sort | None = None
    """What plans are ordered by; None: by cost."""
    from_settings: tuple[str, ...] = ()
    """Options that were not typed, but are set for every command (`gpuplan config`)."""
