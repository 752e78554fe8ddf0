"""What `estimate` answers: plans with their intervals, bases and cost lines.

These models are the machine-readable contract: every key is always present, `null` when this
version cannot fill it, and never renamed within a major version.
"""

from __future__ import annotations

from datetime import date
from typing import Literal

from ...catalog.frozen import FrozenModel, Usd
from ...catalog.vocabulary import Offloaded, Precision, Purchase, Recompute, Stack
from .asked import AskedQuestion
from .layout import Layout

SCHEMA_VERSION = "1.0"

Basis = Literal["measured", "calibrated", "analytic"]


class Estimated(FrozenModel):
    """A predicted quantity with its 80 % interval and what it rests on."""

    value: float
    low: float
    high: float
    basis: Basis


class EstimatedMemory(Estimated):
    """Memory that one device must hold, against what it makes visible to a process."""

    capacity: float


class EstimatedHostMemory(Estimated):
    """Memory that one node's host must have for what is offloaded, against what it has."""

    capacity: float | None
    """Bytes that the host has; None where the catalogue does not know it."""

    @property
    def fits(self) -> bool:
        """Whether the host has it; taken as true where its memory is unknown."""
        return self.capacity is None or self.value <= self.capacity


class ChosenOffer(FrozenModel):
    """The offer that a plan runs on and the price it was planned with."""

    provider: str
    region: str
    zone: str | None = None
    instance_type: str
    accelerator: str
    accelerators_per_node: int
    purchase: Purchase
    term_years: float | None = None
    usd_per_hour: float | None
    """One instance."""
    spot_usd_per_hour: float | None = None
    """One instance on the spot market; None when unknown or without information."""
    price_basis: str
    price_date: date | None
    price_date_precision: Literal["day", "month", "year"] | None = None
    """How exactly the source dates its price."""


class Breakdown(FrozenModel):
    """Where one step's time goes, in seconds; the parts add up to the step time."""

    compute: float
    memory_bound: float
    launch: float
    optimizer: float
    tensor_comm: float = 0.0
    context_comm: float = 0.0
    expert_comm: float = 0.0
    data_comm_exposed: float
    host_comm_exposed: float = 0.0
    """Copies to and from host memory that no compute hides."""
    pipeline_bubble: float = 0.0
    input_wait: float | None = None


class MemoryBreakdown(FrozenModel):
    """What fills the device at the peak, in bytes; the parts add up to the peak."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    temporary: float
    framework: float


class CostLine(FrozenModel):
    """One line of a cost: quantity x unit price."""

    name: str
    quantity: float
    unit: str
    unit_usd: Usd
    usd: Usd


class RunCost(FrozenModel):
    """The whole run: steps, hours and dollars; fields that need a later feature are null."""

    steps: int
    hours: float
    hours_low: float
    hours_high: float
    usd: float | None
    usd_low: float | None
    usd_high: float | None
    spot_usd: float | None = None
    expected_hours: float | None = None
    expected_usd: float | None = None
    goodput: float | None = None
    checkpoint_interval_s: float | None = None
    deadline_probability: float | None = None
    usd_per_million_samples: float | None
    usd_per_million_tokens: float | None
    energy_kwh: float | None = None
    kg_co2e: float | None = None
    cost_lines: tuple[CostLine, ...] = ()


class WholeJob(FrozenModel):
    """The run with everything that is paid for around it, as `launch` counts it.

    From the request to the end of the machines: provisioning, set-up and staging of every node, the
    training, and what the provider rounds up.
    """

    hours: float
    hours_low: float
    hours_high: float
    usd: Usd | None
    """The sum of the cost lines; None where the price is not known."""
    usd_low: Usd | None
    usd_high: Usd | None
    spot_usd: Usd | None = None
    """On the spot market of the plan's region, never interrupted."""
    cost_lines: tuple[CostLine, ...] = ()


class Plan(FrozenModel):
    """One way to run the job: where, how it is laid out, and what it is predicted to take."""

    id: str
    position: int
    string: str
    offer: ChosenOffer
    nodes: int
    accelerators: int
    layout: Layout
    precision: Precision
    micro_batch: int
    grad_accum: int
    global_batch: int
    recompute: Recompute
    compile: bool
    stack: Stack
    optimizer: str
    offload: bool = False
    """Whether anything is kept in host memory; what it is says `offloaded`."""
    offloaded: tuple[Offloaded, ...] = ()
    host_memory_bytes: EstimatedHostMemory | None = None
    """Per node; None where nothing is offloaded."""
    sync_every: int = 1
    step_time_s: Estimated
    breakdown_s: Breakdown
    peak_memory_bytes: EstimatedMemory
    memory_breakdown_bytes: MemoryBreakdown
    samples_per_s: float
    tokens_per_s: float | None
    mfu: float | None
    hfu: float | None
    usd_per_hour: float | None
    """All nodes."""
    usd_per_million_samples: float | None
    usd_per_million_tokens: float | None
    run: RunCost | None
    """The training alone; None where no amount of work was given."""
    whole_job: WholeJob | None = None
    p_oom: float | None = None
    """Chance that it runs out of device memory, from 0 to 1."""
    needs_build: Literal["other", "older"] | None = None
    """Whether the device needs another build of torch than `pip install torch` brings, of this
    release or only of an older one; a note says which."""
    usually_reserved: bool = False
    """Whether the instance type is usually had by reservation or capacity block only."""
    needs_port: bool
    """The accelerator runs torch code only after a port (XLA): listed apart."""
    tie_with_previous: bool = False
    runnable: bool | None = None
    """Whether `gpuplan run` and `launch` carry it out; None when that was not checked."""
    why_not_runnable: str | None = None
    notes: tuple[str, ...] = ()


class CatalogueFacts(FrozenModel):
    """Which price snapshot the plans were priced with."""

    snapshot_date: date
    offers: int


class WorkloadFacts(FrozenModel):
    """What is trained."""

    name: str
    parameters: int
    trainable_parameters: int
    flops_per_sample: float
    """Forward + backward, matmul-like work."""
    tokens_per_sample: float | None


class Rejected(FrozenModel):
    """How many candidates fell out, by reason."""

    out_of_memory: int = 0
    no_price: int = 0
    no_spec: int = 0
    no_topology: int = 0
    over_budget: int = 0
    past_deadline: int = 0
    indivisible: int = 0
    unsupported: int = 0


class Headlines(FrozenModel):
    """Ids of the three plans to look at first, among those that run without a port."""

    cheapest: str | None = None
    fastest: str | None = None
    smallest: str | None = None
    """Fewest accelerators, then fewest dollars a sample."""


class Recommended(FrozenModel):
    """The plan that a person would rent, and why."""

    id: str
    position: int
    reason: str
    gap_to_cheapest: float
    """Its cost over that of the cheapest plan, less one."""


class Hidden(FrozenModel):
    """Feasible candidates that are not shown, by reason."""

    above_cost: int = 0
    """They cost more than 5 times the cheapest."""


class PriceDates(FrozenModel):
    """When the prices that the plans use were read at their sources."""

    oldest: date
    newest: date
    by_year: bool = False
    """Whether a source of them names its year alone; the date is then the first of January."""


class Estimate(FrozenModel):
    """The whole answer of `gpuplan estimate`."""

    schema_version: str = SCHEMA_VERSION
    gpuplan_version: str
    generated_at: str
    catalog: CatalogueFacts
    workload: WorkloadFacts
    question: AskedQuestion | None = None
    """What was asked; None in answers of versions that did not keep it."""
    headlines: Headlines = Headlines()
    recommended: Recommended | None = None
    """None without an amount of work, or where no plan is sensible."""
    recommended_on_large_clouds: Recommended | None = None
    """The same on AWS, Google Cloud and Azure, where the recommended plan is of another seller."""
    prices: PriceDates | None = None
    plans: tuple[Plan, ...]
    feasible: int
    """Feasible candidates before the best of each accelerator was taken."""
    rejected: Rejected
    hidden: Hidden = Hidden()
    nearest_miss: str | None = None
    """Where no plan is within the limits: what the nearest takes, and what to give."""
    notes: tuple[str, ...] = ()
