"""What launches of a project's plans have cost beside what was planned, and why it differs.

Of ended launches. The difference is taken apart one after another: runs beyond the plan (scope),
launches and attempts that came to nothing (failures, less those that were planned), the price of an
hour, hours in which the job did not run (idle, less the start that was planned), and what is left:
the hours in which it did (speed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ...cost.run_cost import UNIT
from ..limits import SpentOf
from ..money import NOTHING, cents
from ..project.months import Month
from .actual_rows import SpentRow, VarianceRow
from .matching import Launched, matched
from .report import BudgetReport
from .rows import Entry, ExperimentRow
from .spent_so_far import with_spent_on_first_page


@dataclass(frozen=True, kw_only=True)
class Spend:
    """What the store knows of one launch; dollars as its account counts them."""

    launch: str
    launched: Launched
    """What it was for."""
    month: Month
    """In which it was launched."""
    status: str
    """Its outcome, else its state."""
    has_ended: bool
    has_succeeded: bool
    usd: Decimal
    """Of all its attempts, so far."""
    lost_usd: Decimal
    """Of the attempts before the last one."""
    idle_usd: Decimal | None
    """Of the last attempt: the time before its command began and after it ended."""
    node_hour_usd: Decimal | None
    """What an hour of one node cost in the last attempt; None where that is not known."""
    billed_usd: Decimal | None
    """What the provider billed; None where no bill was imported."""
    owner: str | None = None
    """Who answers for it; None: its experiment's owner."""
    expected_usd: Decimal | None = None
    """What it was launched to cost in all; None where that is not known."""
    usd_by_month: Mapping[str, Decimal] | None = None
    """Its dollars in each month in which its machines ran; None: all in that of its launch."""


def with_spent(report: BudgetReport, spends: Iterable[Spend]) -> BudgetReport:
    """Return a report with the launches of its plans, and the variance of each experiment.

    Its limits, sums and first page count what they have cost.

    Args:
        report: as it was planned.
        spends: launches; those of the project that match no experiment are outside the plan, and
            those of neither are left out.
    """
    of_row: dict[str | None, list[Spend]] = {}
    rows: list[SpentRow] = []
    counted: list[tuple[Spend, ExperimentRow | None]] = []
    for one in sorted(spends, key=lambda one: (one.month, one.launch)):
        row, how = matched(one.launched, report.experiments) or (None, None)
        if row is None and not one.launched.is_of_project:
            continue
        name = None if row is None else row.name
        counted.append((one, row))
        planned_usd = NOTHING if row is None else row.run_usd
        if one.has_ended:
            of_row.setdefault(name, []).append(one)
        rows.append(
            SpentRow(
                launch=one.launch,
                experiment=name,
                month=one.month,
                usd=cents(one.usd),
                usd_by_month=_by_month(one),
                forecast_usd=None if one.has_ended else _forecast_usd(one, planned_usd),
                planned_usd=planned_usd,
                status=one.status,
                billed_usd=None if one.billed_usd is None else cents(one.billed_usd),
                matched_by=how,
            )
        )
    variances = [
        _variance(row, [one for one in report.entries if one.experiment == row.name], spends_of)
        for row in report.experiments
        if (spends_of := of_row.get(row.name))
    ]
    if None in of_row:
        variances.append(_outside(of_row[None]))
    found = report.model_copy(update={"spent": tuple(rows), "variances": tuple(variances)})
    return with_spent_on_first_page(found, spent_of(counted)) if counted else found


def spent_of(counted: Iterable[tuple[Spend, ExperimentRow | None]]) -> SpentOf:
    """Return the sums of launches, each beside the experiment that it carried out."""
    by_month: dict[str, Decimal] = {}
    by_owner: dict[str, Decimal] = {}
    dearest: dict[str, Decimal] = {}
    for one, row in counted:
        usd = cents(one.usd)
        for month, part in _by_month(one).items():
            by_month[month] = by_month.get(month, NOTHING) + part
        owner = one.owner or (None if row is None else row.owner)
        if owner is not None:
            by_owner[owner] = by_owner.get(owner, NOTHING) + usd
        if row is not None:
            dearest[row.name] = max(usd, dearest.get(row.name, NOTHING))
    return SpentOf(
        total_usd=sum(by_month.values(), NOTHING),
        by_month=by_month,
        by_owner=by_owner,
        dearest_by_experiment=dearest,
    )


def _by_month(one: Spend) -> dict[str, Decimal]:
    """Return the dollars of a launch in each month in which its machines ran, to the cent."""
    parts = one.usd_by_month or {str(one.month): one.usd}
    return {month: cents(part) for month, part in parts.items()}


def _forecast_usd(one: Spend, planned_usd: Decimal | None) -> Decimal:
    """Return what an open launch is likely to cost: as expected or planned, or what it has."""
    expected_usd = planned_usd if one.expected_usd is None else one.expected_usd
    return cents(max(one.usd, expected_usd or NOTHING))


def _outside(spends: Sequence[Spend]) -> VarianceRow:
    """Return the ended launches that no experiment planned: all of their cost is scope."""
    spent = sum((cents(one.usd) for one in spends), NOTHING)
    return VarianceRow(
        experiment=None,
        launches=len(spends),
        succeeded=sum(one.has_succeeded for one in spends),
        runs=0,
        spent_usd=spent,
        billed_usd=_billed(spends),
        planned_usd=NOTHING,
        difference_usd=spent,
        scope_usd=spent,
        failures_usd=NOTHING,
        price_usd=NOTHING,
        speed_usd=NOTHING,
        idle_usd=NOTHING,
    )


def _variance(row: ExperimentRow, entries: Sequence[Entry], spends: Sequence[Spend]) -> VarianceRow:
    """Return how far the ended launches of an experiment are from its plan."""
    done = [one for one in spends if one.has_succeeded]
    spent = sum((cents(one.usd) for one in spends), NOTHING)
    facts = {
        "experiment": row.name,
        "launches": len(spends),
        "succeeded": len(done),
        "runs": row.runs,
        "spent_usd": spent,
        "billed_usd": _billed(spends),
    }
    if row.run_usd is None:
        return VarianceRow(**facts)
    planned = row.run_usd * min(len(done), row.runs)
    scope = row.run_usd * max(0, len(done) - row.runs)
    nothing_done = sum((cents(one.usd) for one in spends if not one.has_succeeded), NOTHING)
    lost = sum((cents(one.lost_usd) for one in done), NOTHING)
    hour_usd = _planned_hour_usd(entries)
    done_share = (hour_usd or NOTHING) * len(done) / row.runs

    def planned_usd(is_part: Callable[[Entry], bool]) -> Decimal:
        """Return what some lines of so many runs were planned to cost, with their tax."""
        hours = (one.quantity for one in entries if one.unit == UNIT and is_part(one))
        return cents(sum(hours, NOTHING) * done_share)

    # Checkpoints stand in the same kind of line; they are written whether a run fails or not.
    failures = nothing_done + lost - planned_usd(lambda one: one.name == "failures and restarts")
    price = _price_variance(hour_usd, done)
    start = planned_usd(lambda one: one.kind == "start-up")
    idle = _idle_variance(hour_usd, done, start)
    difference = spent - planned
    left = difference - scope - failures
    return VarianceRow(
        **facts,
        planned_usd=planned,
        difference_usd=difference,
        scope_usd=scope,
        failures_usd=failures,
        price_usd=price,
        idle_usd=idle,
        # Where it is not known how long the jobs ran, it is in what is left.
        speed_usd=None if price is None else left - price - (idle or NOTHING),
    )


def _price_variance(planned_usd: Decimal | None, done: Sequence[Spend]) -> Decimal | None:
    """Return what another price of an hour cost; None where a price is not known."""
    found = NOTHING
    for one in done:
        if planned_usd is None or not one.node_hour_usd:
            return None
        last_usd = one.usd - one.lost_usd
        found += last_usd - last_usd * planned_usd / one.node_hour_usd
    return cents(found)


def _idle_variance(
    planned_usd: Decimal | None, done: Sequence[Spend], start_usd: Decimal
) -> Decimal | None:
    """Return what hours without the job cost beyond the planned start, at the planned price.

    None where it is not known how long a job ran, or what an hour cost.
    """
    found = NOTHING
    for one in done:
        if planned_usd is None or not one.node_hour_usd or one.idle_usd is None:
            return None
        found += one.idle_usd * planned_usd / one.node_hour_usd
    return cents(found) - start_usd


def _planned_hour_usd(entries: Sequence[Entry]) -> Decimal | None:
    """Return the planned price of an instance-hour with its tax, the mean over its months."""
    machines = [one for one in entries if one.unit == UNIT]
    hours = sum((one.quantity for one in machines), NOTHING)
    usd = sum((one.quantity * one.unit_usd for one in machines), NOTHING)
    # Disks are taxed as machines are: of the tax only the rate says what an hour costs.
    taxed = [one for one in entries if one.kind == "tax"]
    net = sum((one.quantity for one in taxed), NOTHING)
    tax = sum((one.quantity * one.unit_usd for one in taxed), NOTHING)
    rate = tax / net if net else NOTHING
    return usd * (1 + rate) / hours if hours else None


def _billed(spends: Sequence[Spend]) -> Decimal | None:
    """Return what was billed; None where a launch has no bill."""
    known = [one.billed_usd for one in spends if one.billed_usd is not None]
    return cents(sum(known, NOTHING)) if known and len(known) == len(spends) else None
