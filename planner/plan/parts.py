"""The parts of a plan: offer, estimates with their intervals, where time and memory go, cost.

These models are the machine-readable contract: every key is always present, `null` when this
version cannot fill it, and never renamed within a major version. The text below a field is its
description in the JSON Schema.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Literal

from ...catalog.frozen import FrozenModel, Usd
from ...catalog.spot import SpotStatus
from ...catalog.text.money import format_money
from ...catalog.text.quantity import UNKNOWN
from ...catalog.types import CPU_PREFIX, USER_PRICE_BASES
from ...catalog.vocabulary import Purchase
from .energy import EnergyBasis

Basis = Literal["measured", "calibrated", "analytic"]


class Estimated(FrozenModel):
    """A predicted quantity with its 80 % interval and what it rests on."""

    value: float
    """The likely value, in the unit that the name of the quantity ends with."""
    low: float
    """Low end of the 80 % interval."""
    high: float
    """High end of the 80 % interval."""
    basis: Basis
    """This model ran there, it is corrected by measured runs, or it rests on curves alone."""


class EstimatedMemory(Estimated):
    """Memory that one device must hold, against what it makes visible to a process."""

    capacity: float
    """Bytes that the device shows to a process."""


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
    """Who sells it: aws, gcp, azure …"""
    region: str
    """As the provider names it; "global" where it has none."""
    zone: str | None = None
    """As the provider names it, where the price is of one zone."""
    instance_type: str
    """As the provider names it: p5.48xlarge."""
    accelerator: str
    """Canonical name: H100-80GB-SXM."""
    accelerators_per_node: int
    """Accelerators of one instance."""
    purchase: Purchase
    """How it is paid for."""
    term_years: float | None = None
    """Years of a commitment."""
    usd_per_hour: float | None
    """US dollars an hour of one instance; None where no source states a price."""
    spot_usd_per_hour: float | None = None
    """US dollars an hour of one instance on the spot market; None when unknown or without
    information."""
    spot_status: SpotStatus | None = None
    """Whether there is such a price, the type is sold so and the price is not known, or the type is
    not sold so; None in plans of versions that did not say it."""
    price_basis: str
    """What kind of price it is: list, billing …"""
    price_date: date | None
    """When the price was read at its source."""
    price_date_precision: Literal["day", "month", "year"] | None = None
    """How exactly the source dates its price."""
    list_usd_per_hour: float | None = None
    """US dollars an hour of one instance before the user's discount; None without one."""
    discount_percent: float | None = None
    """Percent that the user's pricebook takes off that; None without one."""
    tax_percent: float | None = None
    """Percent of tax on what is rented, by the user's pricebook; None: none is counted. No price of
    this offer holds it; the dollars of the whole job do."""

    @property
    def is_cpu(self) -> bool:
        """Whether its accelerator is the host's own processors (`--vs-cpu`)."""
        return self.accelerator.startswith(CPU_PREFIX)

    @property
    def is_own(self) -> bool:
        """Whether it is a machine of the user's own: bought, or there without a price.

        A cloud's machine at the price of the user's contract is none.
        """
        is_unpriced = self.price_basis in USER_PRICE_BASES and self.usd_per_hour is None
        return self.price_basis == "owned" or is_unpriced

    @property
    def has_own_terms(self) -> bool:
        """Whether the user's pricebook changes what is paid for it."""
        changes = (self.discount_percent, self.tax_percent)
        return self.price_basis == "pricebook" or any(one is not None for one in changes)


class Breakdown(FrozenModel):
    """Where one step's time goes, in seconds; the parts add up to the step time."""

    compute: float
    """Seconds of matmul-like kernels."""
    memory_bound: float
    """Seconds of pointwise kernels, norms and copies."""
    launch: float
    """Seconds in which the device waits for the host to launch kernels."""
    optimizer: float
    """Seconds of the optimizer's step."""
    tensor_comm: float = 0.0
    """Seconds of collectives between tensor-parallel ranks."""
    context_comm: float = 0.0
    """Seconds of collectives between context-parallel ranks."""
    expert_comm: float = 0.0
    """Seconds of collectives between expert-parallel ranks."""
    data_comm_exposed: float
    """Seconds of data-parallel collectives that no compute hides."""
    host_comm_exposed: float = 0.0
    """Seconds of copies to and from host memory that no compute hides."""
    pipeline_bubble: float = 0.0
    """Seconds in which a pipeline stage has nothing to do."""
    input_wait: float | None = None
    """Seconds in which devices wait for their input; None where that was not looked at."""


class MemoryBreakdown(FrozenModel):
    """What fills the device at the peak, in bytes; the parts add up to the peak."""

    parameters: float
    """Bytes of the weights that the kernels read."""
    gradients: float
    """Bytes of the gradients."""
    optimizer: float
    """Bytes of the optimizer's state and of master weights."""
    activations: float
    """Bytes that the backward pass needs of the forward pass."""
    temporary: float
    """Bytes of what one kernel needs, and of fragmentation."""
    framework: float
    """Bytes of the device's context, libraries and communicators."""


class CostLine(FrozenModel):
    """One line of a cost: quantity x unit price."""

    name: str
    """What is paid for."""
    quantity: float
    """How much of it, in `unit`."""
    unit: str
    """What is counted, such as instance-hour."""
    unit_usd: Usd
    """US dollars for one unit."""
    usd: Usd
    """US dollars of the line."""


DATASET_LINES = ("data set kept", "data set moved")


class DataLine(FrozenModel):
    """One line of what is paid beside the machines: data, SkyPilot's controller, spares.

    Dollars are None where no source states a price.
    """

    name: str
    """What is paid for."""
    quantity: float
    """How much of it, in `unit`; a GB is what the seller calls so."""
    unit: str
    """What is counted, such as GB-month."""
    unit_usd: Usd | None
    """US dollars for one unit, in the first tier of an amount."""
    usd: Usd | None
    """US dollars of the line."""
    source: str | None = None
    """Where the price comes from."""
    is_certain: bool = False
    """Whether such a job surely pays it; a download, spares and a bucket may be done without."""

    @property
    def is_of_dataset(self) -> bool:
        """Whether it is of the data set, which is shown with the cost."""
        return self.name in DATASET_LINES

    @property
    def text(self) -> str:
        """What is paid for and what it costs: "disks $4.60", "download of a checkpoint ?"."""
        return f"{self.name} {UNKNOWN if self.usd is None else format_money(self.usd)}"


class Evaluation(FrozenModel):
    """Evaluations while a run trains, as far as they are known before it."""

    every_steps: int
    """Steps from one to the next; one more is at the end."""
    samples: int
    """On which each is made."""
    share: float
    """What all of them take, of the time of the steps."""
    share_low: float
    """Low end of the 80 % interval."""
    share_high: float
    """High end of the 80 % interval."""


class Stops(FrozenModel):
    """What stops a run, and what a stop and a checkpoint of it take."""

    per_hour: float
    """Stops per hour of the whole job: failures, and interruptions of spot machines."""
    per_hour_low: float
    """Low end of the 80 % interval."""
    per_hour_high: float
    """High end of the 80 % interval."""
    checkpoint_bytes: float
    """Bytes of one checkpoint: weights and the optimizer's state."""
    stall_s: float
    """Seconds that a checkpoint holds the training up."""
    restart_s: float
    """Seconds from a stop until training goes on where it was saved, machines billed."""
    wait_s: float
    """Seconds without machines after a stop, on average; not billed."""
    saved_share: float = 0.0
    """Of the stops, from 0 to 1: those before which a notice of the cloud saves the work."""
    evaluation: Evaluation | None = None
    """None where it is not known how often and on how much is evaluated: it is assumed then."""
    sources: tuple[str, ...] = ()
    """Where these come from."""


class RunCost(FrozenModel):
    """The whole run: steps, hours and dollars; fields that need a later feature are null."""

    steps: int
    """Optimizer steps."""
    trained_samples: float | None = None
    """Samples that it trains on; None in plans of versions that did not say it."""
    trained_tokens: float | None = None
    """The same in tokens; None for a model without tokens."""
    limited_by: Literal["budget", "deadline"] | None = None
    """The limit that ends it, where the question was how much can be trained within limits."""
    hours: float
    """Likely hours of training."""
    hours_low: float
    """Low end of the 80 % interval, hours."""
    hours_high: float
    """High end of the 80 % interval, hours."""
    usd: float | None
    """Likely US dollars of the training; None where the price is not known."""
    usd_low: float | None
    """Low end of the 80 % interval, US dollars."""
    usd_high: float | None
    """High end of the 80 % interval, US dollars."""
    spot_usd: float | None = None
    """US dollars of the same hours on the spot market, never interrupted."""
    expected_hours: float | None = None
    """Hours of the whole job with failures and interruptions counted."""
    expected_usd: float | None = None
    """US dollars of the whole job with failures and interruptions counted."""
    goodput: float | None = None
    """Share of the time that trains, from 0 to 1."""
    checkpoint_interval_s: float | None = None
    """Seconds of training between the checkpoints that are proposed."""
    deadline_probability: float | None = None
    """Chance that it ends before the deadline, from 0 to 1."""
    budget_probability: float | None = None
    """Chance that it costs no more than the budget, from 0 to 1."""
    usd_per_million_samples: float | None
    """US dollars for a million samples."""
    usd_per_million_tokens: float | None
    """US dollars for a million tokens."""
    energy_kwh: float | None = None
    """Kilowatt-hours of electricity from the machines' start to the end of training, with cooling;
    None where the power of the machine is not known."""
    energy_kwh_low: float | None = None
    """Low end of the 80 % interval, kilowatt-hours."""
    energy_kwh_high: float | None = None
    """High end of the 80 % interval, kilowatt-hours."""
    energy_basis: EnergyBasis | None = None
    """Whether its power is stated by its owner or modelled from TDP; nothing of it is measured."""
    kg_co2e: float | None = None
    """Kilograms of CO2 equivalent of that electricity, by the mean of the region's grid
    (location-based); None where the power or the grid is not known."""
    kg_co2e_low: float | None = None
    """Low end of the 80 % interval of the electricity, kilograms."""
    kg_co2e_high: float | None = None
    """High end of the 80 % interval of the electricity, kilograms."""
    cost_lines: tuple[CostLine, ...] = ()
    """What the dollars are made of."""


class SpotPriceRange(FrozenModel):
    """How far the price of spot machines moves while a job runs, by prices that were seen."""

    low: float
    """Low end of 80 % of the price over that of the job's begin, at most 1."""
    high: float
    """High end of the same, at least 1."""
    prices: int
    """Days with a price that this rests on."""
    days: int
    """From the first of them to the last."""


class WholeJob(FrozenModel):
    """The run with everything that is paid for around it, as `launch` counts it.

    From the request to the end of the machines: provisioning, set-up and staging of every node, the
    training with its checkpoints, failures and restarts, and what the provider rounds up.
    """

    hours: float
    """Likely hours from the request to the end."""
    hours_low: float
    """Low end of the 80 % interval, hours."""
    hours_high: float
    """High end of the 80 % interval, hours."""
    usd: Usd | None
    """US dollars, the sum of the cost lines; None where the price is not known."""
    usd_low: Usd | None
    """Low end of the 80 % interval, US dollars."""
    usd_high: Usd | None
    """High end of the 80 % interval, US dollars."""
    spot_usd: Usd | None = None
    """US dollars on the spot market of the plan's region, its interruptions counted."""
    spot_total_usd: Usd | None = None
    """The same with what is surely paid beside such machines and whose price is known: SkyPilot's
    controller for one. None in plans of versions that did not count it."""
    on_demand_usd: Usd | None = None
    """US dollars of the job of a spot plan on the same machines on demand, with what is surely paid
    beside them; None where that price is not known, or it is no spot plan."""
    spot_price: SpotPriceRange | None = None
    """How far the price of a spot plan moves, which its interval holds; None where that is not
    known, or it is no spot plan."""
    cost_lines: tuple[CostLine, ...] = ()
    """What the dollars are made of."""
    data_lines: tuple[DataLine, ...] = ()
    """What is paid beside `usd`: disks, checkpoints that are kept, one download, SkyPilot's
    controller of a spot plan, spares of NVL72 racks."""
    total_usd: Usd | None = None
    """US dollars, the exact sum of the cost lines and of those data lines that are surely paid and
    whose price is known; None where the price of the machines is not."""
    lower_bound: bool = False
    """Whether a line that is surely paid has no known price and is not negligible: the job costs
    more than is shown."""
    dataset_usd: Usd = Decimal(0)
    """US dollars of the data set among these lines, as far as they are known: those that the user
    has stated the size of."""

    @property
    def beside_usd(self) -> Decimal:
        """What is surely paid beside the machines, as far as it is known.

        It is shown with their cost, and plans are ordered by both.
        """
        if self.total_usd is None or self.usd is None:
            return self.dataset_usd
        return self.total_usd - self.usd
