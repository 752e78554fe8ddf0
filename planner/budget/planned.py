"""Runs of a project with what each takes and costs: the seam between plans and the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from ...catalog.names import shown_instance
from ...catalog.types import Offer
from ...catalog.units import HOURS_PER_YEAR
from ..cost.beside_machines.beside import FAILED_ATTEMPTS, HOST, IDLE_TAIL, dearest_unit_usd
from ..cost.paid_whole import AFTER_HOURS, FURTHER, FURTHER_BLOCK, UNUSED, UNUSED_BLOCK
from ..cost.run_cost import CENT, UNIT
from ..cost.tax import TAX, tax_rate, taxed
from ..plan.plan import CostLine, DataLine, Plan
from .project.experiment import Experiment
from .report.rows import EntryKind, FrontPoint, OptionName

OWNED = "owned"
"""How machines that the user has bought are paid for; it stands behind their names."""
TRAINING = "training"
KINDS: Mapping[str, EntryKind] = {
    "provisioning": "start-up",
    "setup": "start-up",
    "staging": "start-up",
    "billing increment": "start-up",
    TRAINING: "accelerators",
    "evaluation and slow steps": "evaluation",
    "evaluation": "evaluation",
    "slow steps": "accelerators",
    "checkpoints": "failures",
    "failures and restarts": "failures",
    UNUSED: "commitment",
    UNUSED_BLOCK: "commitment",
    FURTHER_BLOCK: "commitment",
    IDLE_TAIL: "start-up",
    HOST: "accelerators",
    TAX: "tax",
}
"""Cost lines of a plan → what the ledger says they pay for."""


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """One cost line of one run."""

    kind: EntryKind
    name: str
    quantity: float
    unit: str
    unit_usd: Decimal
    list_unit_usd: Decimal | None = None
    """Before the discount of the user's pricebook; None: without one, or it is not known."""


@dataclass(frozen=True, kw_only=True)
class OpenLine:
    """One cost line of one run that has no known price."""

    kind: EntryKind
    name: str
    quantity: float
    unit: str
    dearest_unit_usd: Decimal | None = None
    """US dollars of a unit, with tax, where it is dearest; None: that does not bound the line."""

    @property
    def most_usd(self) -> Decimal | None:
        """US dollars of one run at that price; None where it is not known."""
        unit_usd = self.dearest_unit_usd
        return None if unit_usd is None else Decimal(self.quantity) * unit_usd


@dataclass(frozen=True, kw_only=True)
class RunCostOf:
    """What one run takes and costs, by a plan or on a machine that was named."""

    plan: Plan | None
    """None for hours of a machine."""
    provider: str
    region: str | None
    sku: str
    rent: str
    accelerator: str
    accelerators: int
    nodes: int
    hours: float
    hours_low: float
    hours_high: float
    usd: Decimal | None
    """None where no source states a price: the run is then in no sum."""
    usd_low: Decimal | None
    usd_high: Decimal | None
    lines: tuple[RunLine, ...]
    unknown: tuple[str, ...] = ()
    """Cost lines whose price is not known."""
    open_lines: tuple[OpenLine, ...] = ()
    """Those of them without which the run's cost is only the least that it may be."""
    perhaps: tuple[str, ...] = ()
    """Cost lines that such a run may do without, as in an estimate: they are in no sum."""
    price_date: date | None = None
    """When the machine's price was read at its source; None where that is not known."""
    price_date_precision: str | None = None
    """What of that date the source says: "day", "month" or "year"."""
    is_spot: bool = False
    """Whether its machines may be taken away, and their price moves."""
    is_price_agreed: bool = False
    """Whether its price is signed or paid (a term, a reservation, machines of one's own), so that
    no trend of prices moves it."""
    term_hours: float | None = None
    """Hours of a commitment that is bought for these runs alone, and paid used or not."""
    above_term_usd: Decimal | None = None
    """What an hour on demand, after that commitment, costs above one of it; None: not known."""
    is_paid_first: bool = False
    """Whether its machines are paid when it begins: those of a capacity block."""

    @property
    def whole_usd(self) -> Decimal | None:
        """US dollars with what is surely paid beside the machines and whose price is known."""
        job = None if self.plan is None else self.plan.whole_job
        return self.usd if self.usd is None or job is None else self.usd + job.beside_usd

    @property
    def hour_usd(self) -> Decimal | None:
        """US dollars of one instance-hour; None where no line is of them."""
        return next((line.unit_usd for line in self.lines if line.unit == UNIT), None)

    @property
    def hour_list_usd(self) -> Decimal | None:
        """US dollars of that hour before the pricebook's discount; None without one."""
        return next((line.list_unit_usd for line in self.lines if line.unit == UNIT), None)

    @property
    def instance_hours(self) -> float:
        """Instance-hours of one run that are billed."""
        return sum(line.quantity for line in self.lines if line.unit == UNIT)

    def hours_of(self, kind: EntryKind, *, but: str | None = None) -> float:
        """Return the billed instance-hours of one kind, those of one line left out.

        A line of another unit, such as the idle tail's dollars of a run, is no hours.
        """
        lines = (line for line in self.lines if line.unit == UNIT and line.kind == kind)
        return sum(line.quantity for line in lines if line.name != but)


@dataclass(frozen=True, kw_only=True)
class PlannedRuns:
    """Runs of one setting of an experiment: one rung, one variant of its model."""

    name: str
    """As the report calls it: "ladder/2", "sweep[layers=12]"."""
    experiment: str
    """Its key in the project."""
    spec: Experiment
    runs: int
    """Settings x seeds, of one occurrence."""
    model: str | None
    work: str | None
    options: Mapping[OptionName, RunCostOf]
    """What a run costs on the cheapest, the recommended and the fastest plan."""
    front: tuple[FrontPoint, ...] = ()
    flops_per_sample: float | None = None
    """Forward and backward FLOPs of one sample; None where no model was read."""
    workload: str | None = None
    """Hash of the model's files, params and inputs; None where that is not known."""
    notes: tuple[str, ...] = field(default=())
    """What the estimate warns of: its numbers may be wrong."""

    def chosen(self, option: OptionName | None = None) -> RunCostOf:
        """Return what a run costs by an option; None: by the one that the project asks for."""
        return self.options[option or self.spec.option]

    @property
    def work_share(self) -> float:
        """Share of a whole run's work that a run does on average, early ends counted."""
        return 1.0 if self.spec.stop_early is None else self.spec.stop_early.work_share

    @property
    def repeated(self) -> float:
        """Failed attempts for each run that succeeds."""
        return 0.0 if self.spec.retry is None else self.spec.retry.repeated_per_run

    @property
    def progress_at_failure(self) -> float:
        """How far a failed attempt is on average, share of a run."""
        return 0.0 if self.spec.retry is None else self.spec.retry.mean_progress_at_failure


def run_cost_of(plan: Plan) -> RunCostOf:
    """Return what one run of a plan takes and costs; the plan has an amount of work."""
    job = plan.job
    assert job is not None
    offer = plan.offer
    whole_term = plan.commitment is not None and plan.commitment.unused_is_counted
    beside = _beside_machines(plan)
    lines = (*_machine_lines(job.cost_lines, offer.discount_percent), *beside.lines)
    term = offer.term_years or 0
    sku = f"{offer.instance_type} {offer.purchase}"
    return RunCostOf(
        plan=plan,
        provider=offer.provider,
        region=offer.region,
        sku=f"{sku} {term:g}y" if term else sku,
        rent=plan.place,
        accelerator=offer.accelerator,
        accelerators=plan.accelerators,
        nodes=plan.nodes,
        hours=job.hours,
        hours_low=job.hours_low,
        hours_high=job.hours_high,
        usd=_decimal(job.usd),
        usd_low=_decimal(job.usd_low),
        usd_high=_decimal(job.usd_high),
        lines=lines if job.usd is not None else (),
        unknown=beside.unknown,
        open_lines=_open_lines(plan),
        perhaps=beside.perhaps,
        price_date=offer.price_date,
        price_date_precision=offer.price_date_precision,
        is_spot=offer.purchase == "spot",
        is_price_agreed=offer.purchase not in ("on-demand", "spot"),
        term_hours=term * HOURS_PER_YEAR if whole_term and term else None,
        above_term_usd=_above_term_usd(job.cost_lines),
        is_paid_first=offer.purchase == "block",
    )


def _machine_lines(lines: Sequence[CostLine], discount_percent: float | None) -> Iterator[RunLine]:
    """Yield the lines of a run's machines; what a project shares is left to its ledger."""
    for line in _at_hour_of_term(lines):
        if line.quantity and line.name not in (UNUSED, FURTHER):
            unit_usd = Decimal(line.unit_usd)
            is_hours = line.unit == UNIT
            yield RunLine(
                kind=KINDS.get(line.name, "accelerators"),
                name=line.name,
                quantity=line.quantity,
                unit=line.unit,
                unit_usd=unit_usd,
                list_unit_usd=before_discount(unit_usd, discount_percent) if is_hours else None,
            )


@dataclass(frozen=True, kw_only=True)
class _BesideMachines:
    """What a run costs beside its machines, as the fields of `RunCostOf` of these names say."""

    lines: tuple[RunLine, ...]
    unknown: tuple[str, ...]
    perhaps: tuple[str, ...]


def _beside_machines(plan: Plan) -> _BesideMachines:
    of_job = () if plan.whole_job is None else plan.whole_job.data_lines
    # A project says itself how many fail (`retry`).
    beside = [one for one in of_job if one.name != FAILED_ATTEMPTS]
    certain = [one for one in beside if one.is_certain]
    return _BesideMachines(
        lines=tuple(
            # An amount may lie in several tiers of a price: the unit is what one run takes of it.
            RunLine(
                kind=_kind_beside(one),
                name=one.name,
                quantity=1,
                unit="run",
                unit_usd=one.usd,
            )
            for one in certain
            # The ledger counts the tax on each month's rows.
            if one.usd and one.name != TAX
        ),
        unknown=tuple(one.name for one in certain if one.usd is None),
        perhaps=tuple(one.name for one in beside if not one.is_certain and one.quantity),
    )


def _open_lines(plan: Plan) -> tuple[OpenLine, ...]:
    """Return what is surely paid beside the machines of a plan whose cost is a lower bound."""
    if plan.whole_job is None or not plan.is_lower_bound:
        return ()
    return tuple(
        OpenLine(
            kind=_kind_beside(one),
            name=one.name,
            quantity=one.quantity,
            unit=one.unit,
            dearest_unit_usd=_dearest_unit_usd(one.name, plan),
        )
        for one in plan.whole_job.data_lines
        if one.is_certain and one.usd is None
    )


def _dearest_unit_usd(name: str, plan: Plan) -> Decimal | None:
    usd, percent = dearest_unit_usd(name), plan.offer.tax_percent
    return None if usd is None else usd * (1 + tax_rate(Decimal(str(percent or 0))))


def _kind_beside(line: DataLine) -> EntryKind:
    return KINDS.get(line.name, "storage")


def _hour_usd(lines: Iterable[CostLine]) -> Decimal | None:
    return next((one.unit_usd for one in lines if one.unit == UNIT), None)


def _above_term_usd(lines: Sequence[CostLine]) -> Decimal | None:
    """Return what an hour on demand after a term costs above one of it; None without such hours."""
    for one in lines:
        if one.name == FURTHER:
            return one.unit_usd
        if one.name == AFTER_HOURS:
            return one.unit_usd - (_hour_usd(lines) or one.unit_usd)
    return None


def _at_hour_of_term(lines: Sequence[CostLine]) -> Iterator[CostLine]:
    """Yield lines, with hours after a term among the training: a project buys terms for all runs.

    Its ledger says itself which of their hours come after the terms.
    """
    after_h = sum(one.quantity for one in lines if one.name == AFTER_HOURS)
    for one in lines:
        if one.name == TRAINING:
            yield one.model_copy(update={"quantity": one.quantity + after_h})
        elif one.name != AFTER_HOURS:
            yield one


def before_discount(usd: Decimal, percent: Decimal | float | None) -> Decimal | None:
    """Return the list price of what costs so much less a discount; None without one."""
    return None if percent is None else usd * 100 / (100 - Decimal(str(percent)))


def _decimal(usd: Decimal | float | None) -> Decimal | None:
    return None if usd is None else Decimal(str(usd))


def run_cost_of_machine(
    offer: Offer,
    *,
    nodes: int,
    hours: float,
    spot: bool,
    discount_percent: Decimal | None = None,
    tax_percent: Decimal | None = None,
    is_owned: bool = False,
) -> RunCostOf:
    """Return what hours of a machine cost; they are as many as is said, not an estimate.

    No trend of prices and no tax moves what is bought already.

    Args:
        offer: the machine.
        nodes: how many of it.
        hours: of each.
        spot: whether at its spot price.
        discount_percent: what the user's pricebook has taken off that price; None: nothing.
        tax_percent: on what they cost; None: none is counted.
        is_owned: whether the machine is the user's own, bought.
    """
    purchase = OWNED if is_owned else "spot" if spot else "on-demand"
    tax_percent = None if is_owned else tax_percent
    price = offer.market_spot_usd_per_hour if spot else offer.on_demand_usd_per_hour
    count = round(offer.accelerators * nodes)
    net = None if price is None else (Decimal(price) * Decimal(hours * nodes)).quantize(CENT)
    usd = None if net is None else taxed(net, tax_percent)
    line = RunLine(
        kind="accelerators",
        name="machine",
        quantity=hours * nodes,
        unit=UNIT,
        unit_usd=Decimal(price or 0),
        list_unit_usd=before_discount(Decimal(price or 0), discount_percent),
    )
    name = shown_instance(offer.provider, offer.instance_type)
    return RunCostOf(
        plan=None,
        provider=offer.provider,
        region=offer.region,
        sku=f"{offer.instance_type} {purchase}",
        rent=f"{offer.provider} {nodes} × {name} {offer.region}",  # noqa: RUF001
        accelerator=offer.accelerator,
        accelerators=count,
        nodes=nodes,
        hours=hours,
        hours_low=hours,
        hours_high=hours,
        usd=usd,
        usd_low=usd,
        usd_high=usd,
        lines=() if net is None else (line, *_tax_lines(net, tax_percent)),
        price_date=None if price is None else offer.price_date,
        price_date_precision=offer.price_date_precision,
        is_spot=spot,
        is_price_agreed=is_owned,
    )


def _tax_lines(net_usd: Decimal, percent: Decimal | None) -> tuple[RunLine, ...]:
    if not percent:
        return ()
    quantity, unit_usd = float(net_usd), tax_rate(percent)
    return (RunLine(kind="tax", name=TAX, quantity=quantity, unit="USD", unit_usd=unit_usd),)
