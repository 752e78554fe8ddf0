"""The tables of a report that are about the runs: machines, time, speed, memory, energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from .....catalog.units import GIB, HOURS_PER_DAY
from .....planner.budget.report.report import BudgetReport
from .....planner.budget.report.rows import ExperimentRow
from ...plans.explain import MEMORY_PARTS, STEP_PARTS
from ..figures import least
from .money_tables import range_cells
from .tables import Column, Table, without_empty

EXPERIMENT = Column("Experiment", is_name=True)


def experiments_table(report: BudgetReport) -> Table:
    """Return what each experiment trains, on what, and what it costs."""
    table = Table(
        id="experiments",
        caption="Experiments: what is trained, on what, and what it costs",
        columns=(
            EXPERIMENT,
            Column("Owner", is_name=True, may_be_absent=True),
            Column("Model", is_name=True, may_be_absent=True),
            Column("Work of a run", may_be_absent=True),
            Column("Runs", "count"),
            Column("Rented for a run", is_name=True),
            Column("Accelerators of a run"),
            Column("Hours of a run", "number"),
            Column("Hours at least", "number"),
            Column("Hours at most", "number"),
            Column("US dollars of a run", "usd"),
            Column("US dollars in all", "usd", adds=True),
            Column("Likely at least", "about_usd"),
            Column("Likely at most", "about_usd"),
        ),
        rows=tuple(
            (
                row.name,
                row.owner,
                row.model,
                row.work,
                row.runs,
                row.rent,
                row.devices,
                row.run_hours,
                row.run_hours_low,
                row.run_hours_high,
                _run_usd(row),
                *range_cells(row.total),
            )
            for row in report.experiments
        ),
        has_total=True,
    )
    return without_empty(table)


def _run_usd(row: ExperimentRow) -> Decimal | None:
    """Return what one run costs, with what it surely pays beside its machines."""
    if row.run_usd is None:
        return None
    return least(row.run_usd + row.run_beside_usd, row.total.lower_bound)


def timeline_table(report: BudgetReport) -> Table:
    """Return when each experiment begins and ends."""
    return Table(
        id="timeline",
        caption="When each experiment runs, in days from the first of the project",
        columns=(
            EXPERIMENT,
            Column("Begins in", "month"),
            Column("First day", "number"),
            Column("Last day", "number"),
            Column("Days", "number"),
        ),
        rows=tuple(
            (
                row.name,
                str(row.starts),
                row.begins_h / HOURS_PER_DAY,
                row.ends_h / HOURS_PER_DAY,
                (row.ends_h - row.begins_h) / HOURS_PER_DAY,
            )
            for row in report.experiments
        ),
    )


def resources_table(report: BudgetReport) -> Table:
    """Return accelerator-hours, energy and carbon of each experiment."""
    return Table(
        id="resources",
        caption="Accelerator-hours, energy and carbon of each experiment",
        columns=(
            EXPERIMENT,
            Column("Accelerator"),
            Column("Accelerator-hours", "number", adds=True),
            Column("Energy, kWh", "number", adds=True),
            Column("Carbon, kg CO2e", "number", adds=True),
            Column("Chance that memory runs out", "share"),
        ),
        rows=tuple(
            (
                row.name,
                row.accelerator,
                row.accelerator_hours,
                row.energy_kwh,
                row.kg_co2e,
                row.p_oom,
            )
            for row in report.experiments
        ),
        has_total=True,
    )


def fronts_table(report: BudgetReport) -> Table:
    """Return the plans of each experiment of which none is both slower and dearer than another."""
    return Table(
        id="fronts",
        caption="Time against cost of one run: plans of which none is both slower and dearer",
        columns=(
            EXPERIMENT,
            Column("Hours of a run", "number"),
            Column("US dollars of a run", "usd"),
            Column("Rented", is_name=True),
        ),
        rows=tuple(
            (row.name, point.hours, least(point.usd, point.lower_bound), point.rent)
            for row in report.experiments
            for point in row.front
        ),
    )


def step_table(report: BudgetReport) -> Table:
    """Return where the time of a step goes, in milliseconds."""
    rows = [row for row in report.experiments if row.step_parts]
    return _parts(
        "steps",
        "Where the time of one training step goes, milliseconds",
        rows,
        [row.step_parts for row in rows],
        STEP_PARTS,
        scale=1e3,
    )


def memory_table(report: BudgetReport) -> Table:
    """Return what fills the memory of a device, in GiB, beside what it holds."""
    rows = [row for row in report.experiments if row.memory_parts]
    capacity = {"capacity": "device holds"}
    return _parts(
        "memory",
        "What fills the memory of one accelerator at the peak, GiB",
        rows,
        [
            {
                **row.memory_parts,
                **({"capacity": row.memory_capacity_bytes} if row.memory_capacity_bytes else {}),
            }
            for row in rows
        ],
        {**MEMORY_PARTS, **capacity},
        scale=1 / GIB,
    )


def part_names(parts: Sequence[Mapping[str, float]], known: Mapping[str, str]) -> dict[str, str]:
    """Return key → name of the parts that any row has, in the order of `known`, others last."""
    found = {key for one in parts for key, value in one.items() if value}
    ordered = [key for key in known if key in found]
    return {key: known.get(key, key) for key in [*ordered, *sorted(found - set(ordered))]}


def _parts(
    name: str,
    caption: str,
    rows: Sequence[ExperimentRow],
    parts: Sequence[Mapping[str, float]],
    known: Mapping[str, str],
    *,
    scale: float,
) -> Table:
    names = part_names(parts, known)
    return Table(
        id=name,
        caption=caption,
        columns=(
            EXPERIMENT,
            *(Column(text.capitalize(), "number", may_be_absent=True) for text in names.values()),
        ),
        rows=tuple(
            (row.name, *(None if key not in one else one[key] * scale for key in names))
            for row, one in zip(rows, parts, strict=True)
        ),
    )
