"""What a launch costs beside its training: the start of the machines, and how providers bill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import NamedTuple

from ...catalog.types import Provider
from ...catalog.units import SECONDS_PER_HOUR
from ..goodput.expected_run import ExpectedRun, expected_run, mean_training_s
from ..plan.parts import Stops
from ..plan.plan import CostLine, Estimated
from .billing import Lengths, bill_ends_us, billed_us, mean_billed_us, more_bills_ends_us
from .paid_whole import (
    AFTER_HOURS,
    MICROSECONDS_PER_SECOND,
    NO_FURTHER,
    REST_LINES,
    Further,
    PaidWhole,
)
from .run_cost import CENT, UNIT
from .start_up import ends_with_start_s, startups, with_all_starts
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
    hours_worst: float | None = None
    """For which the machines run in that case, whatever is paid whole."""
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
    """
    parts = [(one.name, _us(one.value_s)) for one in startups()]
    start_us = sum(us for _, us in parts)
    rate = usd_per_hour * nodes
    if training_s is None:
        lines = _lines(parts, nodes, usd_per_hour)
        return LaunchCost(
            lines=with_tax(lines, tax_percent),
            usd_per_hour=rate,
            controller_usd_per_hour=controller_usd_per_hour,
        )
    run = None if stops is None else expected_run(training_s, stops)
    parts += _training_parts(training_s, run)
    ran_us = sum(us for _, us in parts)
    lengths = None if run is None else _lengths(run, start_us)
    expected_us = mean_billed_us(ran_us, billing, lengths)
    if billing is not None and billing.billing_increment_s is not None:
        parts.append(("billing increment", expected_us - ran_us))
    further = _further(expected_us, start_us, paid_whole, run)
    if paid_whole is not None:
        # Hours after a term are among those that are expected: so much more of it is not used.
        unused_us = paid_whole.paid_us(expected_us) + further.beyond_us - expected_us
        parts.append((paid_whole.rest, unused_us))
        if paid_whole.costs_less_after:
            parts = _without_end(parts, further.beyond_us)
            further = further._replace(beyond_us=0, hours_us=further.beyond_us)
    paid_us = sum(us for _, us in parts) + further.paid_us - further.beyond_us
    beside = (
        *_further_lines(further, nodes, usd_per_hour, paid_whole),
        *_controller_lines(expected_us, controller_usd_per_hour),
    )
    lines = with_tax((*_lines(parts, nodes, usd_per_hour), *beside), tax_percent)

    def usd(us: int, node_usd_per_hour: Decimal) -> Decimal:
        machines = _usd(us, nodes, node_usd_per_hour)
        return taxed(machines + _controller_usd(us, controller_usd_per_hour), tax_percent)

    ends = _bills(training_s, run, start_us, ran_us, billing=billing, idle_s=idle_s)
    # A further block that few runs need is in the mean of all, and not in nine of ten.
    paid = ends if paid_whole is None else ends.paid_whole(paid_whole, expected_us)
    paid = paid.around(paid_us)
    terms_us = 0 if paid_whole is None else paid_whole.paid_us(expected_us)
    terms_usd = _usd(terms_us, nodes, usd_per_hour)
    # Where it is tried elsewhere too, the hours there are paid beside what is paid whole.
    elsewhere_usd = Decimal(0)
    if dearest_usd_per_hour > usd_per_hour:
        hours_usd = _usd(ends.worst_us, nodes, dearest_usd_per_hour)
        elsewhere_usd = taxed(terms_usd + hours_usd, tax_percent)
    return LaunchCost(
        lines=lines,
        usd_per_hour=rate,
        controller_usd_per_hour=controller_usd_per_hour,
        usd_expected=sum((line.usd for line in lines), Decimal(0)),
        usd_low=usd(paid.low_us, usd_per_hour),
        usd_high=usd(paid.high_us, usd_per_hour),
        usd_of_run=(usd(paid.run_low_us, usd_per_hour), usd(paid.run_high_us, usd_per_hour)),
        usd_worst=usd(paid.worst_us, dearest_usd_per_hour)
        if paid_whole is None
        else max(usd(paid.worst_us, usd_per_hour), elsewhere_usd),
        hours_expected=_hours(expected_us),
        hours_worst=_hours(
            paid.worst_us if paid_whole is None else max(ends.worst_us, expected_us)
        ),
        usd_of_terms=None if paid_whole is None else taxed(terms_usd, tax_percent),
        run=run,
    )


def _further(
    expected_us: int, start_us: int, paid_whole: PaidWhole | None, run: ExpectedRun | None
) -> Further:
    """Return what is paid on average after the terms or blocks."""
    if paid_whole is None:
        return NO_FURTHER
    if run is None:
        return paid_whole.after_planned(expected_us)
    start_s = start_us / MICROSECONDS_PER_SECOND
    return paid_whole.after_planned(
        expected_us, lambda seconds: 1 - run.chance_within(seconds - start_s)
    )


def _further_lines(
    further: Further, nodes: int, usd_per_hour: Decimal, paid_whole: PaidWhole | None
) -> tuple[CostLine, ...]:
    """Return the line of what runs pay that take longer than what is paid whole; or none.

    Hours after a term are on other lines at its price: this one has what they cost above it.
    """
    usd = _usd(further.paid_us - further.beyond_us, nodes, usd_per_hour)
    if paid_whole is None or not usd:
        return ()
    share, is_alone = paid_whole.hourly_share, paid_whole.costs_less_after
    times = Decimal(1) if share is None else share if is_alone else share - 1
    line = CostLine(
        name=AFTER_HOURS if is_alone else paid_whole.further,
        quantity=nodes * _hours(further.hours_us or further.beyond_us or further.paid_us),
        unit=UNIT,
        unit_usd=(usd_per_hour * times).quantize(UNIT_PLACES).normalize(),
        usd=usd,
    )
    return (line,)


def _without_end(parts: Sequence[tuple[str, int]], end_us: int) -> list[tuple[str, int]]:
    """Return parts without so much of them: of the longest first, which is the training."""
    left = dict(parts)
    for name in sorted(left, key=left.__getitem__, reverse=True):
        if name not in REST_LINES:
            taken_us = min(left[name], end_us)
            left[name] -= taken_us
            end_us -= taken_us
    return list(left.items())


class _Bills(NamedTuple):
    """For how long a node is billed at the ends of 80 % of the launches, and at worst."""

    low_us: int
    high_us: int
    worst_us: int
    run_low_us: int
    """The first two where machines start as expected."""
    run_high_us: int

    def paid_whole(self, how: PaidWhole, planned_us: int) -> _Bills:
        """Return the same where terms or blocks are paid, used or not."""
        return _Bills(*(how.billed_us(us, planned_us=planned_us) for us in self))

    def around(self, mean_us: int) -> _Bills:
        """Return the same with the mean of all between their ends."""
        return _Bills(
            low_us=min(self.low_us, mean_us),
            high_us=max(self.high_us, mean_us),
            worst_us=max(self.worst_us, mean_us),
            run_low_us=min(self.run_low_us, mean_us),
            run_high_us=max(self.run_high_us, mean_us),
        )


def _bills(
    training_s: Estimated,
    run: ExpectedRun | None,
    start_us: int,
    ran_us: int,
    *,
    billing: Provider | None,
    idle_s: float,
) -> _Bills:
    """Return what a seller bills of a launch, rounded up as it does.

    Args:
        training_s: the run itself.
        run: the same with its checkpoints and stops.
        start_us: of the machines, expected.
        ran_us: start and run together, expected.
        billing: the provider.
        idle_s: idle time after the job.
    """
    lengths = None if run is None else _lengths(run, start_us)
    range_s = _billed_range_s(training_s, run)
    low_us, high_us, worst_us = _ends_us(start_us, ran_us, range_s, idle_s)
    run_low_us, run_high_us = (start_us + _us(end_s) for end_s in range_s)
    all_starts = None if lengths is None else with_all_starts(lengths)
    _, most_us = more_bills_ends_us(billing, lengths)
    return _Bills(
        *bill_ends_us(low_us, high_us, billing, all_starts),
        billed_us(worst_us, billing) + most_us,
        *bill_ends_us(run_low_us, run_high_us, billing, lengths),
    )


def _ends_us(
    start_us: int, ran_us: int, range_s: tuple[float, float], idle_s: float
) -> tuple[int, int, int]:
    """Return how long a node runs at the low end, at the high one and at worst, unrounded.

    At worst its start is the slowest, and it idles at its end.
    """
    low_s, high_s = ends_with_start_s((ran_us - start_us) / MICROSECONDS_PER_SECOND, *range_s)
    slowest_start_us = sum(_us(one.high_s) for one in startups())
    return (
        # Parts are rounded one by one, so that their sum may be a microsecond beyond an end.
        min(_us(low_s), ran_us),
        max(_us(high_s), ran_us),
        slowest_start_us + _us(range_s[1]) + _us(idle_s),
    )


def _controller_usd(us: int, usd_per_hour: Decimal) -> Decimal:
    """Return what a controller costs for a job of so many microseconds, and until it stops."""
    hours = Decimal(us) / Decimal(MICROSECONDS_PER_SECOND * SECONDS_PER_HOUR)
    return ((hours + CONTROLLER_IDLE_HOURS) * usd_per_hour).quantize(CENT)


def _controller_lines(us: int, usd_per_hour: Decimal) -> tuple[CostLine, ...]:
    if not usd_per_hour:
        return ()
    line = CostLine(
        name=CONTROLLER,
        quantity=_hours(us) + float(CONTROLLER_IDLE_HOURS),
        unit=UNIT,
        unit_usd=usd_per_hour,
        usd=_controller_usd(us, usd_per_hour),
    )
    return (line,)


def _training_parts(training_s: Estimated, run: ExpectedRun | None) -> list[tuple[str, int]]:
    """Return what is billed between the first step and the last, in whole microseconds."""
    if run is None:
        return [("training", _us(mean_training_s(training_s)))]
    return [
        ("training", _us(run.training_s)),
        *_beside_parts(run),
        ("checkpoints", _us(run.checkpoints_s)),
        ("failures and restarts", _us(run.stopped_s)),
    ]


def _beside_parts(run: ExpectedRun) -> list[tuple[str, int]]:
    """Return evaluation by itself, where it is known."""
    if run.evaluation_s is None:
        return [("evaluation and slow steps", _us(run.beside_s))]
    return [
        ("evaluation", _us(run.evaluation_s)),
        ("slow steps", _us(run.beside_s) - _us(run.evaluation_s)),
    ]


def _billed_range_s(training_s: Estimated, run: ExpectedRun | None) -> tuple[float, float]:
    """Return the ends of 80 % of what is billed between the first step and the last, seconds.

    Waits for machines are not billed; their share of a slow run is taken as that of the mean.
    """
    if run is None:
        return training_s.low, training_s.high
    share = run.billed_s / run.elapsed_s
    low_s, high_s = run.ends_s
    return share * low_s, share * high_s


def _us(seconds: float) -> int:
    return round(seconds * MICROSECONDS_PER_SECOND)


def _hours(us: int) -> float:
    return us / (MICROSECONDS_PER_SECOND * SECONDS_PER_HOUR)


def _lengths(run: ExpectedRun, start_us: int) -> Lengths:
    """Return how long the machines of a run are billed; of waits the mean share is not."""
    share, start_s = run.billed_s / run.elapsed_s, start_us / MICROSECONDS_PER_SECOND
    return Lengths(
        spread_s=share * (run.high_s - run.low_s),
        stops=run.stops,
        chance_within=lambda seconds: run.chance_within((seconds - start_s) / share),
    )


def _lines(
    parts: Sequence[tuple[str, int]], nodes: int, usd_per_hour: Decimal
) -> tuple[CostLine, ...]:
    """Return one line for each part, in cents that add up to their sum rounded once.

    Lines rounded one by one would add up to cents more or less than the sum, which of a small job
    may be beyond its interval. So every line is rounded down, and the cents that are then missing
    go to those that lost most (the method of the largest remainder): none is off by a cent.
    """
    exact = [_exact_usd(us, nodes, usd_per_hour) for _, us in parts]
    cents = [usd.quantize(CENT, rounding=ROUND_FLOOR) for usd in exact]
    total = _usd(sum(us for _, us in parts), nodes, usd_per_hour)
    missing = int((total - sum(cents, Decimal(0))) / CENT)
    by_loss = sorted(range(len(parts)), key=lambda i: cents[i] - exact[i])
    for i in by_loss[:missing]:
        cents[i] += CENT
    return tuple(
        CostLine(name=name, quantity=nodes * _hours(us), unit=UNIT, unit_usd=usd_per_hour, usd=usd)
        for (name, us), usd in zip(parts, cents, strict=True)
    )


def _usd(us: int, nodes: int, usd_per_hour: Decimal) -> Decimal:
    return _exact_usd(us, nodes, usd_per_hour).quantize(CENT)


def _exact_usd(us: int, nodes: int, usd_per_hour: Decimal) -> Decimal:
    node_hours = Decimal(nodes * us) / Decimal(MICROSECONDS_PER_SECOND * SECONDS_PER_HOUR)
    return node_hours * usd_per_hour
