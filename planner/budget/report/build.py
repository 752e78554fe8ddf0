"""A project with the costs of its runs → its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

from ....catalog.units import HOURS_PER_DAY
from ...plan.answer.answer_parts import PriceDates
from ...plan.ids import content_hash
from ...plan.payment import OwnCurrency
from ..funding import funding_rows
from ..ledger import Books, ledger, total_usd
from ..limits import limit_checks, refuse_misspelt_owners, unknown_owners
from ..money import NOTHING, cents
from ..project.months import Month
from ..project.project import Project
from ..ranges import DRAWS, SEED, Ranges, money_range, simulate
from ..run_trend import at_dearest_price
from ..schedule import month_at, refuse_too_late, too_late
from ..sensitivity import sensitivities
from ..sums import (
    NO_EXPERIMENT,
    NO_OWNER,
    NO_PROVIDER,
    months_of,
    owner_limits,
    sums_by,
    sums_by_month,
)
from ..unpriced import Unpriced, open_amounts, open_lines, unpriced, unpriced_text
from ..usage import accelerator_hours, accelerator_use
from .assumptions import assumptions, not_included, risks
from .capacity_rows import CapacityOverTime
from .experiment_rows import experiment_rows
from .limit_rows import LimitCheck
from .open_rows import OpenLedgerLine
from .report import BudgetReport
from .rows import (
    Entry,
    LedgerLine,
    MoneyRange,
    OptionName,
    OptionRow,
    ProjectFacts,
    Sum,
)
from .summary import option_text, summary
from .terms_to_sign import TermToSign, terms_to_sign
from .way_rows import WaysOf, no_ways, way_rows

OPTIONS: tuple[OptionName, ...] = ("cheap", "normal", "fast")


@dataclass(frozen=True, kw_only=True)
class Made:
    """When and from what a report is made."""

    gpuplan_version: str
    generated_at: str
    today: date
    snapshot_date: date
    file: str | None


def build_report(
    books: Books, made: Made, *, seed: int = SEED, ways_of: WaysOf = no_ways
) -> BudgetReport:
    """Return the report of a project.

    Args:
        books: the project, and what its runs cost.
        made: when and from what it is made.
        seed: of the simulation of ranges.
        ways_of: other ways of paying for the machines of a plan.

    Raises:
        UsageError: its runs would go on for decades, or a limit is of an owner whose name nothing
            bears, while another is nearly the same.
    """
    refuse_too_late(books.spans())
    refuse_misspelt_owners(books.project)
    report = _figures(books, made, _costs(books, seed), ways_of)
    return report.model_copy(update={"summary": summary(books, report)})


def with_capacity(report: BudgetReport, capacity: CapacityOverTime) -> BudgetReport:
    """Return a report that says when its runs go on with the accelerators that there are.

    Where the project has a limit of them, the first page says what it means for the runs.
    """
    first, *others = report.summary
    summary = (first, capacity.headline, *others) if capacity.have else report.summary
    return report.model_copy(update={"capacity": capacity, "summary": summary})


@dataclass(frozen=True, kw_only=True)
class _Costs:
    """The ledger of a project, and how sure its sums are."""

    entries: tuple[Entry, ...]
    open_lines: tuple[OpenLedgerLine, ...]
    months: Sequence[Month]
    by_month: tuple[Sum, ...]
    ranges: Ranges
    total: MoneyRange
    contingency_usd: Decimal
    seed: int


def _costs(books: Books, seed: int) -> _Costs:
    project, entries, left = books.project, ledger(books), open_lines(books)
    months = months_of(project, (*entries, *left))
    ranges = simulate(books, entries, months, seed=seed)
    total = ranges.of_project(total_usd(entries), lower_bound=bool(left))
    return _Costs(
        entries=entries,
        open_lines=left,
        months=months,
        by_month=sums_by_month(entries, months, project.limits.month, left),
        ranges=ranges,
        total=total,
        contingency_usd=_share_of(total.usd, project.contingency),
        seed=seed,
    )


def _figures(books: Books, made: Made, costs: _Costs, ways_of: WaysOf) -> BudgetReport:
    """Return the report without its first page, whose words are made from these figures."""
    project, entries, total = books.project, costs.entries, costs.total
    rows = experiment_rows(books, entries, costs.ranges, costs.open_lines)
    funding, unfunded_usd = funding_rows(project, entries)
    without_price, terms = unpriced(books), terms_to_sign(books, entries)
    prices = _price_dates(books)
    oldest = None if prices is None else prices.oldest
    return BudgetReport(
        gpuplan_version=made.gpuplan_version,
        generated_at=made.generated_at,
        snapshot_date=made.snapshot_date,
        prices_from=oldest,
        prices_to=None if prices is None else prices.newest,
        prices_by_year=prices is not None and prices.by_year,
        project=_facts(project, made),
        summary=(),
        total=total,
        contingency_share=project.contingency,
        contingency_usd=costs.contingency_usd,
        budget_usd=total.usd + costs.contingency_usd,
        funding=funding,
        unfunded_usd=unfunded_usd,
        options=_options(books, total, costs.seed),
        experiments=rows,
        entries=entries,
        by_month=costs.by_month,
        **_other_sums(project, entries, costs.open_lines),
        month_ranges=_month_ranges(costs.by_month, costs.ranges),
        limits=_limits(books, costs, terms),
        accelerators=accelerator_use(books, costs.months),
        accelerator_hours=sum(row.accelerator_hours for row in rows),
        energy_kwh=_known_sum([row.energy_kwh for row in rows]),
        kg_co2e=_known_sum([row.kg_co2e for row in rows]),
        sensitivities=sensitivities(books, entries),
        assumptions=assumptions(books, prices=_prices_text(made, prices)),
        risks=risks(books, rows, oldest_price_months=_months_old(oldest, made.today)),
        not_included=not_included(books),
        unpriced=tuple(one.name for one in without_price if not one.is_in_part),
        in_part=tuple(one.name for one in without_price if one.is_in_part),
        open_lines=costs.open_lines,
        beyond=_beyond_the_sums(project, without_price, terms),
        currency=_currency(books),
        ways=way_rows(books, rows, ways_of),
        seed=costs.seed,
        draws=DRAWS,
    )


def _limits(
    books: Books,
    costs: _Costs,
    terms: Sequence[TermToSign],
) -> tuple[LimitCheck, ...]:
    return limit_checks(
        books.project,
        costs.entries,
        costs.by_month,
        at_dearest_price(books),
        costs.contingency_usd,
        open_lines=costs.open_lines,
        to_sign_usd=sum((one.unused_usd for one in terms), NOTHING),
    )


def _beyond_the_sums(
    project: Project, without_price: Sequence[Unpriced], terms: Sequence[TermToSign]
) -> tuple[str, ...]:
    return (
        *unpriced_text(without_price),
        *(one.text for one in terms),
        *unknown_owners(project),
    )


def _facts(project: Project, made: Made) -> ProjectFacts:
    return ProjectFacts(
        name=project.name,
        owner=project.owner,
        team=project.team,
        start=project.start,
        months=project.months,
        file=made.file,
        content_hash=content_hash(project.model_dump(mode="json")),
    )


def _other_sums(
    project: Project, entries: Sequence[Entry], left: Sequence[OpenLedgerLine]
) -> dict[str, Any]:
    """Return the sums beside those of months, under the names of the report's fields."""
    owners = owner_limits(project, (*entries, *left))

    def by(key: Callable[[LedgerLine], str | None], unnamed: str = "") -> tuple[Sum, ...]:
        return sums_by(entries, key, unnamed=unnamed, open_lines=left)

    return {
        "by_experiment": by(lambda row: row.experiment, NO_EXPERIMENT),
        "by_owner": sums_by(
            entries, lambda row: row.owner, unnamed=NO_OWNER, limits=owners, open_lines=left
        ),
        "by_provider": by(lambda row: row.provider, NO_PROVIDER),
        "by_kind": by(lambda row: row.kind),
    }


def _options(books: Books, planned: MoneyRange, seed: int) -> tuple[OptionRow, ...]:
    """Return the whole project with every experiment on its cheapest, usual and fastest plan."""
    asked = {one.spec.option for one in books.planned}
    is_planned = next(iter(asked)) if len(asked) == 1 else None
    planned_part = open_amounts(open_lines(books))
    found: list[OptionRow] = []
    for name in OPTIONS:
        chosen = replace(books, option=name)
        spans = chosen.spans()
        if too_late(spans) is not None:
            continue
        entries = ledger(chosen)
        total, is_same_part = planned, True
        if name != is_planned:
            left, months = open_lines(chosen), months_of(books.project, entries)
            is_same_part = open_amounts(left) == planned_part
            total = simulate(chosen, entries, months, seed=seed).of_project(
                total_usd(entries), lower_bound=bool(left)
            )
        ends_h = max((span.end_h for span in spans), default=0.0)
        ends = month_at(books.project.start, ends_h)
        days = ends_h / HOURS_PER_DAY
        found.append(
            OptionRow(
                name=name,
                is_planned=name == is_planned,
                total=total,
                ends=ends,
                days=days,
                accelerator_hours=sum(accelerator_hours(span, chosen) for span in spans),
                text=option_text(name, total, planned, ends, days, is_same_part=is_same_part),
                is_same_part=is_same_part,
            )
        )
    return tuple(found)


def _month_ranges(by_month: Sequence[Sum], ranges: Ranges) -> tuple[MoneyRange, ...]:
    """Return what is spent until the end of each month: planned, and its range."""
    found: list[MoneyRange] = []
    until, is_least = NOTHING, False
    for i, one in enumerate(by_month):
        until += one.usd
        is_least = is_least or one.lower_bound
        found.append(money_range(until, ranges.until_month[:, i], lower_bound=is_least))
    return tuple(found)


def _share_of(usd: Decimal, share: float) -> Decimal:
    return cents(usd * Decimal(str(share)))


def _known_sum(values: Sequence[float | None]) -> float | None:
    """Return the sum; None where there is nothing, or a part of it is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _price_dates(books: Books) -> PriceDates | None:
    costs = (one.chosen(books.option) for one in books.planned)
    return PriceDates.of((one.price_date, one.price_date_precision) for one in costs)


def _prices_text(made: Made, prices: PriceDates | None) -> str:
    snapshot = f"snapshot of {made.snapshot_date}"
    if prices is None:
        return snapshot
    return f"{snapshot}, read in {prices.text()}"


def _months_old(oldest: date | None, today: date) -> int | None:
    return None if oldest is None else Month.of(today).since(Month.of(oldest))


def _currency(books: Books) -> OwnCurrency | None:
    own = books.project.currency
    if own is None:
        return None
    return OwnCurrency(code=own.code, per_usd=float(own.per_usd), date=own.date)
