"""What a launch costs beside its training: the start of the machines, and how providers bill."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from ...catalog.types import Provider
from ...catalog.units import SECONDS_PER_HOUR
from ..goodput.expected_run import ExpectedRun, expected_run
from ..plan.parts import Stops
from ..plan.plan import CostLine, Estimated
from .launch_time import LaunchTime, MeanBill, bill_ends, expected_start, mean_bill
from .paid_whole import AFTER_HOURS, MICROSECONDS_PER_SECOND, Further, PaidWhole
from .rented import Rented, hours_of
from .run_cost import CENT, UNIT
from .tax import taxed, with_tax

CONTROLLER = "SkyPilot's controller"
UNIT_PLACES = Decimal("0.000001")
"""To which a price that is a share of another is rounded."""
CONTROLLER_IDLE_HOURS = Decimal(10) / 60
"""How long a controller waits for more jobs before it stops (SkyPilot 0.14.1,
sky/jobs/constants.py: CONTROLLER_AUTOSTOP)."""


@dataclass(frozen=True, kw_only=True)
class LaunchCost:
    """What a launch costs; dollars are None where it is not known how long it trains."""

    lines: tuple[CostLine, ...]
    """Add up to `usd_expected`; without a known training time, only the start."""
    usd_per_hour: Decimal
    """All nodes, where they are tried first."""
    controller_usd_per_hour: Decimal = Decimal(0)
    """SkyPilot's controller, counted as if it ran this job alone; 0 where there is none."""
    usd_expected: Decimal | None = None
    usd_low: Decimal | None = None
    usd_high: Decimal | None = None
    """With start and training together at the ends of their 80 % interval."""
    usd_of_run: tuple[Decimal, Decimal] | None = None
    """The same two where machines start as expected, and the training alone is at its ends."""
    usd_worst: Decimal | None = None
    """The slowest start, the top of that interval and the idle end, at the dearest place."""
    hours_expected: float | None = None
    """That are billed by the hour, or would be where something is paid whole."""
    hours_worst: float | None = None
    """The same at worst."""
    hours_running: float | None = None
    """For which the machines are expected to run, whatever is billed of it."""
    usd_of_terms: Decimal | None = None
    """Of `usd_expected`, what terms or blocks cost that are paid whole, whenever the run ends; None
    where what is used is paid."""
    run: ExpectedRun | None = None
    """The training with its checkpoints and stops; None where nothing is known of them."""


def launch_cost(
    training_s: Estimated | None,
    *,
    nodes: int,
    usd_per_hour: Decimal,
    dearest_usd_per_hour: Decimal,
    billing: Provider | None,
    stops: Stops | None = None,
    idle_s: float = 0.0,
    paid_whole: PaidWhole | None = None,
    controller_usd_per_hour: Decimal = Decimal(0),
    tax_percent: Decimal | None = None,
    is_own: bool = False,
) -> LaunchCost:
    """Return the cost of a launch, line by line.

    Args:
        training_s: the run itself, seconds; None where that is not known.
        nodes: how many are rented.
        usd_per_hour: one node, where they are tried first.
        dearest_usd_per_hour: one node, where it costs most of the places that are tried.
        billing: the provider, with its increment and minimum; where the increment is not known
            there is no line of it.
        stops: what stops the run, and what its checkpoints take; None where that is not known, and
            then no line counts it.
        idle_s: idle time after the job until autodown, where no command tears the machines down.
        paid_whole: terms or blocks of each node, paid used or not (for this job alone); None: what
            is used is paid.
        controller_usd_per_hour: SkyPilot's controller of a managed job; 0 where there is none.
        tax_percent: on everything that is billed; None: none is counted.
        is_own: whether they are the user's own, which nobody provisions.
    """
    start = expected_start(is_own=is_own)
    prices = _Prices(
        rented=Rented(nodes=nodes, usd_per_hour=usd_per_hour),
        dearest=Rented(nodes=nodes, usd_per_hour=dearest_usd_per_hour),
        controller_usd_per_hour=controller_usd_per_hour,
        tax_percent=tax_percent,
    )
    if training_s is None:
        return LaunchCost(
            lines=with_tax(prices.rented.lines(start), tax_percent),
            usd_per_hour=prices.rented.all_usd_per_hour,
            controller_usd_per_hour=controller_usd_per_hour,
        )
    run = None if stops is None else expected_run(training_s, stops)
    time = LaunchTime(start=start, training_s=training_s, run=run, is_own=is_own)
    mean = mean_bill(time, billing, paid_whole)
    ends = bill_ends(time, billing=billing, idle_s=idle_s)
    # A further block that few runs need is in the mean of all, and not in nine of ten.
    paid = ends if paid_whole is None else ends.paid_whole(paid_whole, mean.hourly_us)
    paid = paid.around(mean.paid_us)
    terms_usd, worst_us = None, paid.worst_us
    if paid_whole is not None:
        terms_usd = prices.rented.usd(paid_whole.paid_us(mean.hourly_us))
        worst_us = max(ends.worst_us, mean.hourly_us)
    lines = _lines(mean, prices, paid_whole)
    return LaunchCost(
        lines=lines,
        usd_per_hour=prices.rented.all_usd_per_hour,
        controller_usd_per_hour=controller_usd_per_hour,
        usd_expected=sum((line.usd for line in lines), Decimal(0)),
        usd_low=prices.usd(paid.low_us),
        usd_high=prices.usd(paid.high_us),
        usd_of_run=(prices.usd(paid.run_low_us), prices.usd(paid.run_high_us)),
        usd_worst=prices.worst_usd(paid.worst_us, ends.worst_us, terms_usd),
        hours_expected=hours_of(mean.hourly_us),
        hours_worst=hours_of(worst_us),
        hours_running=hours_of(time.expected_us),
        usd_of_terms=None if terms_usd is None else taxed(terms_usd, tax_percent),
        run=run,
    )


@dataclass(frozen=True, kw_only=True)
class _Prices:
    """What time of all machines costs with the controller of the job and the tax."""

    rented: Rented
    """Where they are tried first."""
    dearest: Rented
    """Where they cost most of the places that are tried."""
    controller_usd_per_hour: Decimal
    tax_percent: Decimal | None

    def usd(self, us: int, where: Rented | None = None) -> Decimal:
        """Return what a bill of so many microseconds comes to; None: where they are tried first."""
        machines_usd = (where or self.rented).usd(us)
        controller_usd = _controller_usd(us, self.controller_usd_per_hour)
        return taxed(machines_usd + controller_usd, self.tax_percent)

    def worst_usd(self, paid_us: int, ran_us: int, terms_usd: Decimal | None) -> Decimal:
        """Return what a launch costs at worst.

        Args:
            paid_us: what is billed of it then.
            ran_us: for how long its machines run, whatever is paid whole.
            terms_usd: what is paid whole, before tax; None where nothing is.
        """
        if terms_usd is None:
            return self.usd(paid_us, self.dearest)
        worst_usd = self.usd(paid_us)
        if self.dearest.usd_per_hour <= self.rented.usd_per_hour:
            return worst_usd
        # It is tried elsewhere too, and the hours there are paid beside what is paid whole.
        elsewhere_usd = terms_usd + self.dearest.usd(ran_us)
        return max(worst_usd, taxed(elsewhere_usd, self.tax_percent))


def _lines(mean: MeanBill, prices: _Prices, paid_whole: PaidWhole | None) -> tuple[CostLine, ...]:
    """Return all that is expected to be paid, the tax at the end."""
    lines = (
        *prices.rented.lines(mean.parts),
        *_further_lines(mean.further, prices.rented, paid_whole),
        *_controller_lines(mean.hourly_us, prices.controller_usd_per_hour),
    )
    return with_tax(lines, prices.tax_percent)


def _further_lines(
    further: Further, rented: Rented, paid_whole: PaidWhole | None
) -> tuple[CostLine, ...]:
    """Return the line of what runs pay that take longer than what is paid whole; or none.

    Hours after a term are on other lines at its price: this one has what they cost above it.
    """
    usd = rented.usd(further.paid_us - further.beyond_us)
    if paid_whole is None or not usd:
        return ()
    share, is_alone = paid_whole.hourly_share, paid_whole.costs_less_after
    times = Decimal(1) if share is None else share if is_alone else share - 1
    hours = hours_of(further.hours_us or further.beyond_us or further.paid_us)
    line = CostLine(
        name=AFTER_HOURS if is_alone else paid_whole.further,
        quantity=rented.nodes * hours,
        unit=UNIT,
        unit_usd=(rented.usd_per_hour * times).quantize(UNIT_PLACES).normalize(),
        usd=usd,
    )
    return (line,)


def _controller_usd(us: int, usd_per_hour: Decimal) -> Decimal:
    """Return what a controller costs for a job of so many microseconds, and until it stops."""
    hours = Decimal(us) / Decimal(MICROSECONDS_PER_SECOND * SECONDS_PER_HOUR)
    return ((hours + CONTROLLER_IDLE_HOURS) * usd_per_hour).quantize(CENT)


def _controller_lines(us: int, usd_per_hour: Decimal) -> tuple[CostLine, ...]:
    if not usd_per_hour:
        return ()
    line = CostLine(
        name=CONTROLLER,
        quantity=hours_of(us) + float(CONTROLLER_IDLE_HOURS),
        unit=UNIT,
        unit_usd=usd_per_hour,
        usd=_controller_usd(us, usd_per_hour),
    )
    return (line,)
