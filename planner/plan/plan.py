"""A plan: one way to run a job, with its intervals, bases and cost lines.

These models are the machine-readable contract: every key is always present, `null` when this
version cannot fill it, and never renamed within a major version.
"""

from __future__ import annotations

from typing import Literal

from ...catalog.frozen import FrozenModel
from ...catalog.names import shown_instance
from ...catalog.text.money import format_money_range
from ...catalog.text.quantity import UNKNOWN, format_count, format_hours_range, format_share
from ...catalog.vocabulary import FrozenPrecision, Offloaded, Precision, Recompute, Stack
from .energy import PlanEnergy as PlanEnergy
from .layout import Layout
from .parts import Basis as Basis
from .parts import Breakdown as Breakdown
from .parts import ChosenOffer as ChosenOffer
from .parts import CostLine as CostLine
from .parts import DataLine as DataLine
from .parts import Estimated as Estimated
from .parts import EstimatedHostMemory as EstimatedHostMemory
from .parts import EstimatedMemory as EstimatedMemory
from .parts import MemoryBreakdown as MemoryBreakdown
from .parts import RunCost as RunCost
from .parts import Stops as Stops
from .parts import WholeJob as WholeJob
from .payment import BuyingWay as BuyingWay
from .payment import CommitmentUse as CommitmentUse
from .payment import CreditUse as CreditUse
from .payment import DeadlineWay as DeadlineWay
from .payment import OwnCurrency as OwnCurrency
from .payment import WaysToPay as WaysToPay
from .rows import paths
from .setup import ReduceDtype

SCHEMA_VERSION = "1.0"
ANYWHERE = "global"
"""The region of sellers that have none; it says nothing to a reader."""
BANDWIDTH_BOUND = 2 / 3
"""Share of a step from which it is called bound by memory traffic: all else could then be free, and
the step would still take two thirds of its time."""
AT_LEAST = "≥ "
"""Before a cost that is known in part."""


class Plan(FrozenModel):
    """One way to run the job: where, how it is laid out, and what it is predicted to take."""

    id: str
    """First 10 hex digits of the SHA-256 of its content; the same plan has it in every list."""
    position: int
    """Place in the list, from 1."""
    string: str
    """Layout, batch, recompute and precision in one line."""
    offer: ChosenOffer
    """Where it runs, and at what price."""
    nodes: int
    """Instances that are rented."""
    accelerators: int
    """Of all nodes together."""
    layout: Layout
    """Degrees of parallelism."""
    precision: Precision
    """Number formats of the weights and the kernels."""
    micro_batch: int
    """Samples of one data-parallel rank and pass."""
    grad_accum: int
    """Passes of one optimizer step."""
    global_batch: int
    """Samples of one optimizer step."""
    recompute: Recompute
    """What of the forward pass is computed again in the backward pass instead of kept."""
    recompute_layers: int | None = None
    """How many layers do so, the first ones of every stage; None where all do, or none."""
    compile: bool
    """Whether the model is compiled (torch.compile)."""
    stack: Stack
    """The software that runs the step."""
    optimizer: str
    """Its name."""
    offload: bool = False
    """Whether anything is kept in host memory; what it is says `offloaded`."""
    offloaded: tuple[Offloaded, ...] = ()
    """What is kept in host memory."""
    host_memory_bytes: EstimatedHostMemory | None = None
    """Per node; None where nothing is offloaded."""
    frozen_precision: FrozenPrecision | None = None
    """How parameters that are not trained are kept: "bf16", or "nf4" (4 bits, QLoRA); None as
    `precision` keeps those that are."""
    reduce_dtype: ReduceDtype | None = None
    """What FSDP reduces gradients in where that was asked for, or the file says it; None is fp32
    beside 16-bit layers, and the parameters' own dtype elsewhere."""
    sync_every: int = 1
    """Steps between synchronisations of the replicas."""
    step_time_s: Estimated
    """Seconds of one optimizer step."""
    breakdown_s: Breakdown
    """Where those seconds go."""
    peak_memory_bytes: EstimatedMemory
    """Bytes that the fullest device must hold."""
    memory_breakdown_bytes: MemoryBreakdown
    """What fills that device at its peak."""
    samples_per_s: float
    """Samples a second of all accelerators together."""
    tokens_per_s: float | None
    """Tokens a second of all accelerators together; None for a model without tokens."""
    mfu: float | None
    """Model FLOPs over what the devices could do at the dense peak, from 0 to 1; None where that is
    not defined."""
    hfu: float | None
    """As `mfu`, with recomputed work counted."""
    bandwidth_share: float | None = None
    """Bytes that the kernels of one device read and write, over what its memory could move in the
    step at its peak bandwidth; what a cache serves counts, so it may be above 1. None where the
    model is split over devices."""
    usd_per_hour: float | None
    """US dollars an hour of all nodes."""
    usd_per_million_samples: float | None
    """US dollars for a million samples, at `usd_per_hour`."""
    usd_per_million_tokens: float | None
    """US dollars for a million tokens, at `usd_per_hour`."""
    run: RunCost | None
    """The training alone; None where no amount of work was given."""
    whole_job: WholeJob | None = None
    """The run with its start and its bill; None where no amount of work was given."""
    commitment: CommitmentUse | None = None
    """The term that its machines are paid for; None where they are rented by the hour."""
    credits: tuple[CreditUse, ...] = ()
    """What the user's credits pay of it, the soonest to expire first; no sum is less by them."""
    currency: OwnCurrency | None = None
    """The currency that amounts are also shown in; None: US dollars alone."""
    energy: PlanEnergy | None = None
    """What its electricity rests on; None where the power of its machine is not known."""
    p_oom: float | None = None
    """Chance that it runs out of device memory, from 0 to 1."""
    gathered_parameters: int | None = None
    """Parameters that a rank of FSDP (ZeRO-3) has gathered at most: those outside the blocks, and
    two blocks; None under other layouts, and in plans of versions that did not say."""
    needs_build: Literal["other", "older", "none"] | None = None
    """Whether the device needs another build of torch than `pip install torch` brings, of this
    release or only of an older one (a note says which), or has none that is published."""
    stops: Stops | None = None
    """What stops the run on these machines; None in plans of versions that did not look."""
    deadline_ways: tuple[DeadlineWay, ...] = ()
    """The job on spot, on demand and on both in turn, where it has a deadline and spot machines
    have a price."""
    usually_reserved: bool = False
    """Whether the instance type is usually had by reservation or capacity block only."""
    needs_port: bool
    """The accelerator runs torch code only after a port (XLA): listed apart."""
    tie_with_previous: bool = False
    """Whether its cost interval overlaps that of the plan before."""
    runnable: bool | None = None
    """Whether `gpuplan run` and `launch` carry it out; None when that was not checked."""
    why_not_runnable: str | None = None
    """One sentence where `runnable` is false."""
    startable: Literal["yes", "no", "unknown"] | None = None
    """Whether the user's account can start its machines now; None where that was not asked."""
    why_not_startable: str | None = None
    """Why, where `startable` is no."""
    notes: tuple[str, ...] = ()
    """What a reader should know of this plan."""

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the path of every plain value in the JSON, such as step_time_s.low."""
        return tuple(".".join(path) for path in paths(cls))

    @property
    def stands_apart(self) -> bool:
        """Whether its accelerator runs the file after a port only, or with torch from source."""
        return self.needs_port or self.needs_build == "none"

    @property
    def recompute_text(self) -> str:
        """The recompute policy as it is asked for: "full:10" for ten of the layers."""
        layers = self.recompute_layers
        return self.recompute if layers is None else f"{self.recompute}:{layers}"

    @property
    def is_bandwidth_bound(self) -> bool:
        """Whether memory traffic, not arithmetic, decides how long the step takes.

        That is where kernels that only move data, and the optimizer, take two thirds of it or more.
        """
        parts = self.breakdown_s
        moving_s = parts.memory_bound + parts.optimizer
        return (
            self.bandwidth_share is not None
            and "optimizer" not in self.offloaded
            and "parameters" not in self.offloaded
            and moving_s >= BANDWIDTH_BOUND * self.step_time_s.value
        )

    @property
    def bandwidth_text(self) -> str | None:
        """The share of memory bandwidth it uses, "62 % of bandwidth", where that limits it.

        What caches serve counts too, so that there may be more than all of it.
        """
        if not self.is_bandwidth_bound or self.bandwidth_share is None:
            return None
        if self.bandwidth_share > 1:
            return "the full bandwidth, caches included"
        return f"{format_share(self.bandwidth_share)} of bandwidth"

    @property
    def job(self) -> WholeJob | RunCost | None:
        """The whole job; of a plan made by an older version, the training alone."""
        return self.whole_job or self.run

    @property
    def place(self) -> str:
        """What is rented: "aws 2 × p4d.24xlarge us-east-1", and how unless it is on demand."""
        offer = self.offer
        zone = offer.zone or offer.region
        where = "" if zone == ANYWHERE else f" {zone}"
        bought = "" if offer.purchase == "on-demand" else f" {offer.purchase}"
        if offer.purchase == "committed" and offer.term_years is not None:
            bought += f" {offer.term_years:g}y"
        times = f"{self.nodes} × "  # noqa: RUF001
        name = shown_instance(offer.provider, offer.instance_type)
        return f"{offer.provider} {times}{name}{where}{bought}"

    @property
    def devices(self) -> str:
        """What it computes on: "8 × A100-40GB-SXM"."""
        return f"{self.accelerators} × {self.offer.accelerator}"  # noqa: RUF001

    @property
    def hours_text(self) -> str:
        """The length of the whole job as an interval: "26–33 h", or "?" without work."""
        job = self.job
        return (
            UNKNOWN if job is None else format_hours_range(job.hours_low, job.hours, job.hours_high)
        )

    @property
    def cost_text(self) -> str:
        """The cost of the whole job as an interval: "$1,460–1,850", or "?" if unknown."""
        job = self.job
        if job is None:
            return UNKNOWN
        text = format_money_range(*self.usd_ends)
        return f"{AT_LEAST if self.is_lower_bound else ''}{text}"

    @property
    def usd_ends(self) -> tuple[float | None, float | None, float | None]:
        """Low end, likely value and high end of the cost, US dollars.

        With what is surely paid beside the machines.
        """
        job = self.job
        if job is None:
            return None, None, None
        more = 0.0 if self.whole_job is None else float(self.whole_job.beside_usd)
        ends = (None if usd is None else float(usd) for usd in (job.usd_low, job.usd, job.usd_high))
        low, likely, high = (None if usd is None else usd + more for usd in ends)
        return low, likely, high

    @property
    def likely_usd(self) -> float | None:
        """The likely cost that is shown, US dollars: the middle one of `usd_ends`."""
        return self.usd_ends[1]

    @property
    def is_lower_bound(self) -> bool:
        """Whether it surely costs more than is known: a price beside its machines is missing."""
        job = self.whole_job
        return job is not None and job.usd is not None and job.lower_bound

    @property
    def amount_text(self) -> str | None:
        """What it trains on: "61.2B tokens", where the limits decide that; else None."""
        run = self.run
        if run is None or run.limited_by is None or run.trained_samples is None:
            return None
        if run.trained_tokens is not None:
            return f"{format_count(run.trained_tokens)} tokens"
        return f"{format_count(run.trained_samples)} samples"

    @property
    def rate_text(self) -> str:
        """What it trains a second: "292k tokens/s", or samples where there are no tokens."""
        if self.tokens_per_s is None:
            return f"{format_count(self.samples_per_s)} samples/s"
        return f"{format_count(self.tokens_per_s)} tokens/s"

    def __str__(self) -> str:
        """Return the plan in one line: its id, what is rented, how long and how much."""
        facts = [self.rate_text] if self.job is None else [self.hours_text, self.cost_text]
        if self.amount_text is not None:
            facts.insert(0, self.amount_text)
        return ", ".join([f"Plan {self.id}: {self.place} ({self.devices})", *facts, self.string])

    def __repr__(self) -> str:
        """Return the same line as `str`: a hundred fields say less."""
        return f"<{self}>"
