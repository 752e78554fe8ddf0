"""What `advise` answers: today's plan, and every change of it with what it saves and risks."""

from __future__ import annotations

from typing import Literal

from ...catalog.frozen import FrozenModel
from ..plan.answer.answer_parts import CatalogueFacts, WorkloadFacts
from ..plan.plan import SCHEMA_VERSION, Plan

Kind = Literal[
    "micro_batch",
    "global_batch",
    "precision",
    "recompute",
    "compile",
    "attention",
    "memory_order",
    "odd_width",
    "sharding",
    "fused_optimizer",
    "optimizer",
    "input",
    "offload",
    "machine",
    "together",
]
Verdict = Literal["makes_it_fit", "saves", "trades", "no_difference", "worse", "does_not_fit"]


HELPING: tuple[Verdict, ...] = ("makes_it_fit", "saves", "trades")
"""Of changes that help."""


class Change(FrozenModel):
    """One change of today's setting, planned anew."""

    kind: Kind
    """What is changed."""
    text: str
    """The change in words: "precision fp32 → bf16-amp"."""
    verdict: Verdict
    """What comes of it: `trades` saves time or money and loses the other."""
    gain: str
    """What it does in words: "470 → 394 ms a step, saves 0.5 h and $9 of $56"."""
    alters_training: bool
    """Whether the loss may end elsewhere: another optimizer, another global batch, weights of 16
    bits alone, products of 8 bits."""
    hours_saved: float | None
    """Of the whole job; None without an amount of work, or where today's setting does not fit."""
    usd_saved: float | None
    """Of the whole job, US dollars; None as well where a price is not known."""
    time_saved_share: float | None
    """Of the time of the whole job, or of a sample without an amount of work; 1 is all of it."""
    cost_saved_share: float | None
    """The same of the cost."""
    ends_oom_risk: bool = False
    """Whether today's setting fits and runs out of memory with a larger chance than is accepted
    (`--max-oom-risk`), and the changed one does not."""
    risks: tuple[str, ...]
    """What it may cost beside time and money; empty: nothing that is known."""
    lines: tuple[str, ...]
    """What to write: lines of code, or options of gpuplan."""
    plan: Plan
    """The changed setting as a plan."""


class Advice(FrozenModel):
    """The whole answer of `gpuplan advise`."""

    schema_version: str = SCHEMA_VERSION
    """Of this format."""
    gpuplan_version: str
    """Of the program that answered."""
    generated_at: str
    """ISO 8601, with the offset from UTC."""
    catalog: CatalogueFacts
    """The snapshot of prices."""
    workload: WorkloadFacts
    """What is trained."""
    headline: str
    """The change to make first on the same machine, in one sentence."""
    elsewhere: str | None
    """The machine that saves most, in one sentence; None where none saves anything."""
    today: Plan
    """Today's setting as a plan."""
    today_fits: bool
    """Whether it fits in memory."""
    assumed: tuple[str, ...]
    """What was not given of today's setting, and what was taken."""
    changes: tuple[Change, ...]
    """One thing changed in each, the best first; of those that help, the ones last that alter the
    training: what they save is worth something only if the loss allows it."""
    together: Change | None
    """The cheapest plan on the same machine with everything free; None where no plan is better than
    the best single change there."""
    notes: tuple[str, ...]
    """What a reader should know of the whole answer."""

    def __str__(self) -> str:
        """Return what to do first, in one sentence or two."""
        return " ".join(text for text in (self.headline, self.elsewhere) if text)

    def __repr__(self) -> str:
        """Return the same as `str`: all plans with all fields say less."""
        return f"<{self}>"
