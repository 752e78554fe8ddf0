"""The tables of a request for cloud credits: resources by type, and the timeline by quarter."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from .....planner.budget.report.report import BudgetReport
from .....planner.budget.report.rows import Entry, LedgerLine
from .....planner.budget.unpriced import MACHINES
from ..figures import UNKNOWN, clean, cut, least
from ..formats.calculator import UNIT
from .money_tables import KINDS
from .tables import Column, Table, Value, without_empty

QUARTER_MONTHS = 3
GB_PER_TB = 1000
LONGEST_NAMES = 90
PER_RUN = "disks and checkpoints of runs"


def resources_table(report: BudgetReport) -> Table:
    """Return what is asked for by type, the dearest first; the dollars add up to the total.

    Accelerator-hours are those of the experiments on a machine; TB as the provider counts GB.
    """
    found: dict[str, list[LedgerLine]] = {}
    for line in (*report.entries, *report.open_lines):
        found.setdefault(_resource(line), []).append(line)
    dearest = sorted(found.items(), key=lambda item: -_usd(item[1]))
    rows = [(name, *_amounts(entries, report)) for name, entries in dearest]
    table = Table(
        id="resources",
        caption="What is asked for",
        columns=(
            Column("Resource", is_name=True),
            Column("Accelerator-hours", "count", may_be_absent=True),
            Column("Node-hours", "count", may_be_absent=True),
            Column("TB-months stored", "number", may_be_absent=True),
            Column("TB sent", "number", may_be_absent=True),
            Column("US dollars", "usd", adds=True),
        ),
        rows=tuple(rows),
        has_total=True,
    )
    return without_empty(table)


def quarters_table(report: BudgetReport) -> Table:
    """Return what falls into each quarter, counted from the first month."""
    months = report.by_month
    rows = []
    for first in range(0, len(months), QUARTER_MONTHS):
        quarter = months[first : first + QUARTER_MONTHS]
        names = {one.name for one in quarter}
        hours = sum(one.hours for one in report.accelerators if str(one.month) in names)
        span = quarter[0].name if len(quarter) == 1 else f"{quarter[0].name} to {quarter[-1].name}"
        usd = sum((one.usd for one in quarter), Decimal(0))
        usd = least(usd, any(one.lower_bound for one in quarter))
        rows.append((span, _running(names, report.entries), hours, usd))
    return Table(
        id="quarters",
        caption="By quarter of the project",
        columns=(
            Column("Quarter", "month"),
            Column("Experiments that run", is_name=True, may_be_absent=True),
            Column("Accelerator-hours", "count", adds=True),
            Column("US dollars", "usd", adds=True),
        ),
        rows=tuple(rows),
        has_total=True,
    )


def _resource(entry: LedgerLine) -> str:
    if entry.unit == UNIT:
        return " ".join(
            clean(one)
            for one in (entry.provider, entry.sku, entry.region, entry.accelerator)
            if one
        )
    if entry.kind in ("storage", "egress"):
        what = PER_RUN if entry.unit == "run" else KINDS[entry.kind]
        return " ".join(filter(None, (what, entry.provider and f"({entry.provider})")))
    return KINDS.get(entry.kind, entry.kind)


def _amounts(entries: Sequence[LedgerLine], report: BudgetReport) -> tuple[Value, ...]:
    """Return accelerator-hours, node-hours, TB-months, TB and dollars of rows of one resource."""
    usd, first = _usd(entries), entries[0]
    if first.unit == UNIT:
        nodes = sum((one.quantity for one in entries if _is_machine(one)), Decimal(0))
        return (_accelerator_hours(entries, report), nodes, None, None, usd)
    if first.kind == "storage":
        return (None, None, _terabytes(entries, "GB-month"), None, usd)
    if first.kind == "egress":
        return (None, None, None, _terabytes(entries, "GB"), usd)
    return (None, None, None, None, usd)


def _is_machine(line: LedgerLine) -> bool:
    """Whether its hours are a machine's own, and not those of what is billed beside it."""
    return isinstance(line, Entry) or line.name == MACHINES or line.kind == "idle"


def _usd(lines: Sequence[LedgerLine]) -> Decimal:
    """Return the sum of lines, marked where one of them has no known price."""
    known = [one.usd for one in lines if isinstance(one, Entry)]
    return least(sum(known, Decimal(0)), len(known) < len(lines))


def _accelerator_hours(entries: Sequence[LedgerLine], report: BudgetReport) -> Value:
    names = {one.experiment for one in entries}
    if None in names:  # A machine that is rented for no experiment: its kind is known, not how many
        return UNKNOWN
    return sum(row.accelerator_hours for row in report.experiments if row.name in names)


def _terabytes(entries: Sequence[LedgerLine], unit: str) -> Value:
    """Return TB of rows that count GB; unknown where one counts runs or a price of tiers."""
    if any(one.unit != unit for one in entries):
        return UNKNOWN
    return sum((one.quantity for one in entries), Decimal(0)) / GB_PER_TB


def _running(names: set[str], entries: Sequence[Entry]) -> str | None:
    found = dict.fromkeys(
        clean(one.experiment) for one in entries if one.experiment and str(one.month) in names
    )
    return cut(", ".join(found), LONGEST_NAMES) or None
