"""The ledger of a project: every cost line of every month, exact to the cent.

Each row is a quantity of at most six decimals times a unit price of at most six decimals, rounded
half up to the cent, as a spreadsheet rounds. All sums of a report are sums of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby

from ...catalog.terms.pricebook import Credit
from ...catalog.units import SECONDS_PER_HOUR
from ..cost.paid_whole import AFTER_HOURS, FURTHER, UNUSED, PaidWhole
from ..cost.run_cost import UNIT
from ..cost.tax import TAX
from .attempts import again_hours, billed_hours, evaluation_hours, times_paid
from .fixed_rows import IdlePrice, fixed_rows
from .money import NOTHING, cents, quantum
from .planned import OpenLine, PlannedRuns, RunCostOf, RunLine
from .project.months import Month, shares_by_month
from .project.project import Project
from .report.rows import Entry, EntryKind, LedgerLine, OptionName
from .schedule import Span, month_at, schedule
from .settled import settled
from .trend import trend_of


@dataclass(frozen=True, kw_only=True)
class Books:
    """A project with the costs of its runs: what a ledger is written from."""

    project: Project
    planned: tuple[PlannedRuns, ...]
    idle: tuple[IdlePrice, ...] = ()
    """One for each of the project's `idle`."""
    tax_percent: Decimal | None = None
    """On storage, traffic and idle machines; None: none is counted. Runs have their own."""
    credits: tuple[Credit, ...] = ()
    """Of the pricebook: they pay nothing here, but a reader should know of them."""
    option: OptionName | None = None
    """The plans that are taken for every experiment; None: those each asks for."""

    def with_project(self, **changes: object) -> Books:
        """Return the same with some fields of the project changed."""
        return replace(self, project=self.project.model_copy(update=changes))

    def spans(self) -> list[Span]:
        """Return when its runs take place."""
        return schedule(self.planned, self.project, self.option)


def ledger(books: Books) -> tuple[Entry, ...]:
    """Return the rows of a project's ledger, by month and then in the order of the project file."""
    rows = [
        *(row for span in books.spans() for row in _rows_of_span(span, books)),
        *fixed_rows(books.project, books.idle, books.tax_percent),
    ]
    return tuple(sorted(rows, key=lambda row: row.month))


def total_usd(entries: Iterable[Entry]) -> Decimal:
    """Return the sum of rows, US dollars."""
    return sum((row.usd for row in entries), NOTHING)


def run_lines(one: PlannedRuns, option: OptionName | None = None) -> list[RunLine]:
    """Return the lines of one occurrence of runs: all of them, and those begun again or tried."""
    cost = one.chosen(option)
    lines = [_of_all_runs(one, line, option) for line in cost.lines if line.name != TAX]
    if cost.hour_usd is None:
        return lines
    run = billed_hours(cost)
    evaluation_h = evaluation_hours(one, run)
    lines += [
        _hours("retries", "failed runs begun again", again_hours(one, run), cost),
        _hours("evaluation", "evaluation, as the project says", evaluation_h, cost),
    ]
    tried_h = sum(line.quantity for line in lines if line.unit == UNIT)
    lines.append(_hours("development", "development runs", one.spec.development * tried_h, cost))
    return [line for line in lines if line.quantity]


def _of_all_runs(one: PlannedRuns, line: RunLine, option: OptionName | None) -> RunLine:
    if line.unit != UNIT:
        return replace(line, quantity=line.quantity * times_paid(one, line.name, option))
    share = 1.0 if line.kind in ("start-up", "commitment") else one.work_share
    return replace(line, quantity=line.quantity * one.runs * share)


AFTER_LINES = (AFTER_HOURS, FURTHER)
"""Of hours on demand after a term."""


def _hours(kind: EntryKind, name: str, hours: float, cost: RunCostOf) -> RunLine:
    assert cost.hour_usd is not None
    return RunLine(
        kind=kind,
        name=name,
        quantity=hours,
        unit=UNIT,
        unit_usd=cost.hour_usd,
        list_unit_usd=cost.hour_list_usd,
    )


def _rows_of_span(span: Span, books: Books) -> Iterator[Entry]:
    """Yield the rows of one occurrence, tax behind them.

    Its lines are spread evenly over its time; capacity blocks are paid on the first day of a run,
    and hours on demand after a term at their end.
    """
    one, project = span.of, books.project
    cost = one.chosen(books.option)
    tax = next((line.unit_usd for line in cost.lines if line.name == TAX), None)
    lines, term_h = _with_terms(run_lines(one, books.option), span, cost, project)
    rows, usd = _net_rows(span, lines, term_h, books)
    if not term_h:  # The hours of a term are paid whole, and none of them moves.
        rows = settled(rows, cents(usd))
    for month, of_month in groupby(rows, lambda row: row.month):
        net_rows = list(of_month)
        # Machines and what is beside them have each a tax of their own, as in an estimate.
        for is_hours in (True, False):
            part = [row for row in net_rows if (row.unit == UNIT) is is_hours]
            yield from part
            net = total_usd(part)
            if tax is not None and net:
                line = RunLine(
                    kind="tax",
                    name=TAX,
                    quantity=1,
                    unit="USD",
                    unit_usd=quantum(tax),
                    list_unit_usd=_list_tax(tax, part, net),
                )
                yield _row(one, cost, month, line, net)


def _net_rows(
    span: Span, lines: Sequence[RunLine], term_h: float, books: Books
) -> tuple[list[Entry], Decimal]:
    """Return the rows of one occurrence without tax, by month, and what they cost, not rounded."""
    one, project = span.of, books.project
    cost = one.chosen(books.option)
    even = dict(shares_by_month(project.start, span.begin_h, span.end_h))
    first = _shares_of_begins(span, project) if cost.is_paid_first else {}
    last = dict(shares_by_month(project.start, span.begin_h + term_h, span.end_h))
    rows, usd = list[Entry](), NOTHING
    for month in sorted({*even, *first}):
        for line in lines:
            is_after = term_h > 0 and line.name in AFTER_LINES
            shares = last if is_after else even
            if cost.is_paid_first and line.unit == UNIT:
                shares = first
            exact = Decimal(line.quantity * shares.get(month, 0.0))
            quantity = quantum(exact)
            if quantity:
                priced = line if cost.is_price_agreed else _at(month, line, project)
                if is_after:
                    priced = _after_at(month, line, cost, project)
                rows.append(_row(one, cost, month, _in_quanta(priced), quantity))
                usd += exact * priced.unit_usd
    return rows, usd


def _shares_of_begins(span: Span, project: Project) -> dict[Month, float]:
    """Return the share of runs that begin in each month: they go on in waves."""
    runs, found = span.of.runs, dict[Month, float]()
    waves = math.ceil(runs / span.at_once)
    for wave in range(waves):
        begin_h = span.begin_h + wave * (span.end_h - span.begin_h) / waves
        month = month_at(project.start, begin_h)
        count = min(span.at_once, runs - wave * span.at_once)
        found[month] = found.get(month, 0.0) + count / runs
    return found


def _list_tax(tax: Decimal, rows: Sequence[Entry], net_usd: Decimal) -> Decimal | None:
    """Return the tax at list prices for each dollar that is paid; None where nothing is listed."""
    if not net_usd or all(row.list_unit_usd is None for row in rows):
        return None
    listed = sum((row.list_usd for row in rows), NOTHING)
    return quantum(tax) * listed / net_usd


def _with_terms(
    lines: list[RunLine], span: Span, cost: RunCostOf, project: Project
) -> tuple[list[RunLine], float]:
    """Return lines with what is left of the terms that are bought for these runs alone.

    And with the hours that are taken on demand after them, instead of one more term: what those
    cost above the term, whose price they have on the other lines; or, where they cost no more than
    it, all that they cost, and then they are on no other line. Which it is, and whether another
    term is signed instead, is decided at the price on demand when they end.

    The second is for how many hours the terms last; 0 without any.
    """
    if cost.term_hours is None or cost.hour_usd is None:
        return lines, 0.0
    above_usd = _above_term_usd(cost, trend_of(project, month_at(project.start, span.end_h)))
    share = None if above_usd is None else 1 + above_usd / cost.hour_usd
    whole = PaidWhole(lengths_s=(cost.term_hours * SECONDS_PER_HOUR,), hourly_share=share)
    length_h = span.end_h - span.begin_h
    term_h = whole.paid_s(length_h * SECONDS_PER_HOUR) / SECONDS_PER_HOUR
    used_h = sum(line.quantity for line in lines if line.unit == UNIT)
    after_h = 0.0
    if above_usd is not None:
        after_h = min(used_h, cost.nodes * _last_run_hours(span, max(0.0, length_h - term_h)))
    found = list(lines)
    if after_h and whole.costs_less_after:
        found = _without_hours(lines, after_h)
    left_h = term_h * cost.nodes * span.at_once + after_h - used_h
    if left_h > 0:
        found.append(_hours("commitment", UNUSED, left_h, cost))
    if after_h and above_usd is not None:
        found.append(_after_term(after_h, cost, is_alone=whole.costs_less_after))
    return found, term_h


def _above_term_usd(cost: RunCostOf, trend: Decimal) -> Decimal | None:
    """Return what an hour on demand then costs above one of the term; None: not known."""
    term_usd, above_usd = cost.hour_usd, cost.above_term_usd
    if term_usd is None or above_usd is None:
        return None
    return (term_usd + above_usd) * trend - term_usd


def _last_run_hours(span: Span, last_h: float) -> float:
    """Return the hours of runs in the last hours of a span: its last wave may have fewer runs."""
    waves = math.ceil(span.of.runs / span.at_once)
    in_last_h = min(last_h, (span.end_h - span.begin_h) / waves)
    last_runs = span.of.runs - (waves - 1) * span.at_once
    return last_runs * in_last_h + span.at_once * (last_h - in_last_h)


def _without_hours(lines: Sequence[RunLine], hours: float) -> list[RunLine]:
    """Return lines without so many instance-hours: of the longest first, which is the training."""
    found = list(lines)
    for place in sorted(range(len(found)), key=lambda i: -found[i].quantity):
        if found[place].unit == UNIT:
            taken_h = min(found[place].quantity, hours)
            found[place] = replace(found[place], quantity=found[place].quantity - taken_h)
            hours -= taken_h
    return found


def _after_term(hours: float, cost: RunCostOf, *, is_alone: bool) -> RunLine:
    """Return the line of hours on demand after a term, at what is above the term's price.

    Alone, it will hold all that they cost (`_after_at`).
    """
    kind, name = ("accelerators", AFTER_HOURS) if is_alone else ("commitment", FURTHER)
    return _hours(kind, name, hours, cost)


def _after_at(month: Month, line: RunLine, cost: RunCostOf, project: Project) -> RunLine:
    """Return the line of hours on demand after a term at their price of a month."""
    above_usd = _above_term_usd(cost, trend_of(project, month))
    assert above_usd is not None and cost.hour_usd is not None
    is_alone = line.name == AFTER_HOURS
    # Prices that fall may pass below the term's while these hours run: they cost it then.
    unit_usd = cost.hour_usd + above_usd if is_alone else max(above_usd, Decimal(0))
    return replace(line, unit_usd=unit_usd, list_unit_usd=None)


def _at(month: Month, line: RunLine, project: Project) -> RunLine:
    """Return a line at its unit prices in a month, by the project's trend of prices."""
    if line.unit != UNIT:
        return line
    trend, listed = trend_of(project, month), line.list_unit_usd
    return replace(
        line,
        unit_usd=line.unit_usd * trend,
        list_unit_usd=None if listed is None else listed * trend,
    )


def _in_quanta(line: RunLine) -> RunLine:
    """Return a line with its unit prices to the digits of the ledger."""
    listed = line.list_unit_usd
    return replace(
        line,
        unit_usd=quantum(line.unit_usd),
        list_unit_usd=None if listed is None else quantum(listed),
    )


def _row(
    one: PlannedRuns,
    cost: RunCostOf,
    month: Month,
    line: RunLine,
    quantity: Decimal,
) -> Entry:
    return line_of_runs(one, cost, month, line, quantity).at(line.unit_usd, line.list_unit_usd)


def line_of_runs(
    one: PlannedRuns,
    cost: RunCostOf,
    month: Month,
    line: RunLine | OpenLine,
    quantity: Decimal,
) -> LedgerLine:
    """Return so much of a cost line of runs in a month, whatever its price is."""
    return LedgerLine(
        month=month,
        experiment=one.name,
        stage=one.spec.stage,
        owner=one.spec.owner,
        provider=cost.provider,
        region=cost.region,
        sku=cost.sku,
        accelerator=cost.accelerator,
        kind=line.kind,
        name=line.name,
        quantity=quantity,
        unit=line.unit,
    )
