"""The rows of a budget report. The text below a field is its description in the JSON Schema."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Literal

from ....catalog.frozen import FrozenModel, Usd
from ...cost.paid_whole import AFTER_HOURS
from ...plan.payment import BuyingWay
from ..money import rounded_usd
from ..project.lines import FundingKind
from ..project.months import Month

EntryKind = Literal[
    "accelerators",
    "start-up",
    "evaluation",
    "failures",
    "commitment",
    "tax",
    "retries",
    "development",
    "storage",
    "egress",
    "idle",
    "people",
    "extra",
]
"""What a line of the ledger pays for."""
OptionName = Literal["cheap", "normal", "fast"]


class LedgerLine(FrozenModel):
    """What one row of the ledger is of: so much of something in a month."""

    month: Month
    """The month it falls into."""
    experiment: str | None
    """Of the project's experiments; None for what belongs to none."""
    stage: str | None
    """The experiment's stage."""
    owner: str | None
    """Who answers for it."""
    provider: str | None
    """Who is paid: aws, gcp …; None where that is not known."""
    region: str | None
    """Of the machine."""
    sku: str | None
    """Instance type and how it is paid for; None for what is no machine."""
    accelerator: str | None
    """Canonical name of what the machine computes on."""
    kind: EntryKind
    """What is paid for, in one of a few words."""
    name: str
    """The line: "training", "checkpoints", "data set" …"""
    quantity: Usd
    """How much of it, in `unit`, exact to 6 decimals."""
    unit: str
    """What is counted: instance-hour, GB-month, month …"""

    def at(self, unit_usd: Usd, list_unit_usd: Usd | None = None) -> Entry:
        """Return the row of the ledger that it is at a unit price, US dollars."""
        usd = rounded_usd(self.quantity, unit_usd)
        prices = {"unit_usd": unit_usd, "usd": usd, "list_unit_usd": list_unit_usd}
        return Entry.model_validate({**dict(self), **prices})


class Entry(LedgerLine):
    """One row of the ledger: quantity x unit price, rounded half up to the cent."""

    unit_usd: Usd
    """US dollars for one unit in this month."""
    usd: Usd
    """quantity x unit_usd, rounded half up to the cent."""
    list_unit_usd: Usd | None = None
    """US dollars for one unit before the discounts of the pricebook; of tax, that on what the unit
    costs at list prices. None: the price that is paid, as far as is known."""

    @property
    def list_usd(self) -> Usd:
        """US dollars at list prices, not rounded."""
        price = self.unit_usd if self.list_unit_usd is None else self.list_unit_usd
        return self.quantity * price

    @property
    def is_after_term(self) -> bool:
        """Whether it is of hours on demand, of machines that were bought for a term before."""
        return self.name == AFTER_HOURS


class MoneyRange(FrozenModel):
    """US dollars: what is planned, and where they end with a chance of 10, 50 and 90 %."""

    usd: Usd
    """The sum of the ledger's rows."""
    p10_usd: Usd
    """With a chance of 10 % it is less."""
    p50_usd: Usd
    """It is as likely more as less."""
    p90_usd: Usd
    """With a chance of 10 % it is more."""
    lower_bound: bool = False
    """Whether a part of it has no known price: all of these are then of what has one."""

    def change_text(
        self,
        planned: MoneyRange,
        amount: Callable[[Decimal], str],
        *,
        is_same_part: bool = False,
    ) -> str | None:
        """Return "$5 more" or "at least $5 more"; None where nobody knows which of two is more.

        Args:
            planned: what it is compared with.
            amount: how US dollars are written.
            is_same_part: whether what has no known price is the same of both.
        """
        change = self.usd - planned.usd
        text = f"{amount(abs(change))} {'less' if change < 0 else 'more'}"
        if is_same_part or not (self.lower_bound or planned.lower_bound):
            return text
        # What is not known makes this, or what is planned, dearer.
        is_sure = change > 0 if self.lower_bound else change < 0
        is_sure = is_sure and not (self.lower_bound and planned.lower_bound)
        return f"at least {text}" if is_sure else None


class ProjectFacts(FrozenModel):
    """What the project is."""

    name: str
    """Its name."""
    owner: str | None
    """Who answers for the money."""
    team: str | None
    """Whose project it is."""
    start: Month
    """The first month."""
    months: int
    """How many months are planned."""
    file: str | None
    """Name of the project file; None for a report of plans."""
    content_hash: str
    """SHA-256 of what the project says: the same project has the same."""


class FrontPoint(FrozenModel):
    """One plan of an experiment's cost-time front."""

    hours: float
    """Likely hours of one run."""
    usd: Usd
    """Likely US dollars of one run, with what is surely paid beside its machines."""
    rent: str
    """What is rented."""
    lower_bound: bool = False
    """Whether something that is surely paid beside its machines has no known price."""


class ExperimentRow(FrozenModel):
    """One experiment, or one rung of its ladder."""

    name: str
    """Of the experiment; with its rung, "ladder/2"."""
    owner: str | None
    """Whose it is."""
    stage: str | None
    """Part of the project."""
    model: str | None
    """What is trained; None for hours of a fixed machine."""
    work: str | None
    """How much of it a run trains: "30B tokens"."""
    runs: int
    """Runs that are planned: settings x seeds x repetitions."""
    runs_expected: float
    """Whole runs that take as many hours, failed, early-ended and development runs counted."""
    plan_id: str | None
    """Id of the plan each run is carried out by; None for a fixed machine."""
    plan_key: str | None = None
    """The machines and the layout of that plan, which stay when its price changes."""
    workload: str | None = None
    """Hash of the model's files, params and inputs; None where that is not known."""
    rent: str
    """What is rented: "aws 2 × p4d.24xlarge us-east-1"."""  # noqa: RUF001
    devices: str
    """What it computes on: "16 × A100-40GB-SXM"."""  # noqa: RUF001
    accelerator: str
    """Canonical name."""
    accelerators: int
    """Of one run."""
    layout: str | None
    """Layout, micro-batch and precision in one line."""
    run_hours: float
    """Likely hours of one run, with its start, failures and restarts."""
    run_hours_low: float
    """Low end of the 80 % interval."""
    run_hours_high: float
    """High end of the 80 % interval."""
    run_usd: Usd | None
    """Likely US dollars of one run's machines, at the mean price of the months in which they take
    place."""
    run_usd_low: Usd | None
    """Low end of the 80 % interval."""
    run_usd_high: Usd | None
    """High end of the 80 % interval."""
    run_beside_usd: Usd = Decimal(0)
    """US dollars that a run surely pays beside its machines, as far as they are known: disks, an
    idle tail. With them it costs what its estimate says."""
    accelerator_hours: float
    """Of all its runs together."""
    starts: Month
    """Month of its begin."""
    begins_h: float
    """Hours from the begin of the project to its begin."""
    ends_h: float
    """Hours from the begin of the project to its likely end."""
    p_oom: float | None
    """Chance that a run does not fit into memory, from 0 to 1."""
    step_time_s: float | None
    """Likely seconds of one optimizer step."""
    step_parts: dict[str, float] = {}
    """Where a step's seconds go: compute, memory_bound, launch, data_comm_exposed …"""
    memory_parts: dict[str, float] = {}
    """What fills a device at the peak, bytes: parameters, gradients, optimizer …"""
    memory_capacity_bytes: float | None = None
    """Bytes that a device shows to a process."""
    front: tuple[FrontPoint, ...] = ()
    """Plans of which none is both slower and dearer than another, the cheapest first."""
    energy_kwh: float | None
    """Of all its runs; None where it is not known."""
    kg_co2e: float | None
    """Of all its runs; None where it is not known."""
    seeds: int | None = None
    """Repetitions of each of its settings."""
    samples: float | None = None
    """Samples that a run trains on; None for hours of a fixed machine."""
    flops_per_sample: float | None = None
    """Forward and backward FLOPs of one sample; None where no model was read."""
    total: MoneyRange
    """Of all its rows in the ledger."""


class Sum(FrozenModel):
    """A sum of rows of the ledger, against its limit."""

    name: str
    """Of the month, the owner, the provider, the experiment or the kind."""
    usd: Usd
    """US dollars."""
    share: float
    """Of the total, from 0 to 1."""
    lower_bound: bool = False
    """Whether a part of it has no known price: it is then the least that it may be."""
    at_most_usd: Usd | None = None
    """US dollars where what has no known price costs as much as the dearest seller states; None
    where everything has a price, or where it may cost more than any such price says."""
    limit_usd: Usd | None = None
    """The most it may be; None without a limit."""
    spent_usd: Usd | None = None
    """US dollars that launches have cost so far, of months and owners; None where there are
    none."""

    @property
    def highest_usd(self) -> Usd:
        """US dollars that are planned, or spent where that is more."""
        return max(self.usd, self.spent_usd or self.usd)

    @property
    def is_over(self) -> bool:
        """Whether it is above its limit, by what is planned or by what launches have cost."""
        return self.limit_usd is not None and self.highest_usd > self.limit_usd

    @property
    def is_unknown(self) -> bool:
        """Whether it may be above its limit by what has no known price."""
        if self.limit_usd is None or not self.lower_bound or self.is_over:
            return False
        return self.at_most_usd is None or self.at_most_usd > self.limit_usd


class FundingRow(FrozenModel):
    """What a source of money pays of the project."""

    name: str
    """Of the source."""
    kind: FundingKind
    """A grant, credits or a budget."""
    usd: Usd
    """US dollars that are left of it at the beginning."""
    covers_usd: Usd
    """Cost that it pays."""
    indirect_usd: Usd
    """What the institution adds to that, and takes from it too."""
    left_usd: Usd
    """What is left at the end, or when it expires."""
    expires: date | None
    """The last day on which it pays."""
    lapses_usd: Usd
    """What expires within the project, unused."""


class OptionRow(FrozenModel):
    """The whole project, every experiment on its cheapest, recommended or fastest plan."""

    name: OptionName
    """Which of them."""
    is_planned: bool
    """Whether the report's sums are of this one."""
    total: MoneyRange
    """US dollars of the project."""
    ends: Month
    """Month in which the last experiment ends."""
    days: float
    """Days from the begin of the project to that."""
    accelerator_hours: float
    """Of all runs."""
    text: str
    """In words, what it would mean."""
    is_same_part: bool = True
    """Whether what has no known price is the same as in the plan, so that both compare exactly."""


class WayRow(FrozenModel):
    """One way of paying for a machine of the report: rented, committed, reserved or bought."""

    rent: str
    """The machine, as its experiments have it."""
    experiments: tuple[str, ...]
    """Names of the experiments that train on it."""
    node_hours: float
    """Instance-hours that they need of it in all."""
    way: BuyingWay
    """The way."""


class AcceleratorUse(FrozenModel):
    """How many accelerators of a kind a month needs."""

    month: Month
    """The month."""
    accelerator: str
    """Canonical name."""
    hours: float
    """Accelerator-hours."""
    peak: int
    """The most at the same time."""
    mean: float
    """Accelerator-hours ÷ hours of the month."""


class AssumptionRow(FrozenModel):
    """One thing that the sums rest on."""

    name: str
    """What is assumed."""
    value: str
    """In words."""
    source: str
    """Where it is from: the project file, a default with its source, the catalogue."""
    is_default: bool
    """Whether the project file does not say it."""


class Sensitivity(FrozenModel):
    """How the total moves with one assumption, all others as they are."""

    name: str
    """The assumption."""
    low: str
    """Its low end, in words."""
    high: str
    """Its high end, in words."""
    low_usd: Usd
    """The total at the low end."""
    high_usd: Usd
    """The total at the high end."""

    @property
    def swing_usd(self) -> Usd:
        """How far it moves the total."""
        return abs(self.high_usd - self.low_usd)
