"""The experiments of a project as rows of its report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...plan.plan import Plan
from ...predict.measured.known_runs import run_key
from ..attempts import runs_expected
from ..ledger import Books, total_usd
from ..money import NOTHING
from ..planned import PlannedRuns, RunCostOf
from ..ranges import Ranges
from ..run_trend import at_mean_price
from ..schedule import Span, month_at
from ..usage import accelerator_hours
from .rows import Entry, ExperimentRow, LedgerLine, MoneyRange


def experiment_rows(
    books: Books,
    entries: Sequence[Entry],
    ranges: Ranges,
    open_lines: Iterable[LedgerLine] = (),
) -> tuple[ExperimentRow, ...]:
    """Return the row of every experiment, in the order of the project file.

    Args:
        books: the project, and what its runs cost.
        entries: its ledger.
        ranges: of the simulation.
        open_lines: what has no known price.
    """
    least = {line.experiment for line in open_lines}
    spans: dict[str, list[Span]] = {}
    for span in books.spans():
        spans.setdefault(span.of.name, []).append(span)
    rows = []
    for one in at_mean_price(books):
        usd = total_usd(row for row in entries if row.experiment == one.name)
        total = ranges.of_experiment(one.name, usd, lower_bound=one.name in least)
        rows.append(_experiment_row(one, spans[one.name], books, total))
    return tuple(rows)


def _experiment_row(
    one: PlannedRuns, spans: Sequence[Span], books: Books, total: MoneyRange
) -> ExperimentRow:
    cost = one.chosen(books.option)
    plan = cost.plan
    counted = runs_expected(one, books.option) * one.spec.times
    return ExperimentRow(
        name=one.name,
        owner=one.spec.owner,
        stage=one.spec.stage,
        model=one.model,
        work=one.work,
        runs=one.runs * one.spec.times,
        runs_expected=counted,
        plan_id=None if plan is None else plan.id,
        plan_key=None if plan is None else run_key(plan),
        workload=one.workload,
        rent=cost.rent,
        devices=f"{cost.accelerators} × {cost.accelerator}",  # noqa: RUF001
        accelerator=cost.accelerator,
        accelerators=cost.accelerators,
        layout=None if plan is None else plan.string,
        run_hours=cost.hours,
        run_hours_low=cost.hours_low,
        run_hours_high=cost.hours_high,
        run_usd=cost.usd,
        run_usd_low=cost.usd_low,
        run_usd_high=cost.usd_high,
        run_beside_usd=NOTHING if cost.usd is None else (cost.whole_usd or cost.usd) - cost.usd,
        accelerator_hours=sum(accelerator_hours(span, books) for span in spans),
        starts=month_at(books.project.start, spans[0].begin_h),
        begins_h=spans[0].begin_h,
        ends_h=spans[-1].end_h,
        **_of_plan(plan),
        front=one.front,
        energy_kwh=_of_runs(cost, "energy_kwh", counted),
        kg_co2e=_of_runs(cost, "kg_co2e", counted),
        seeds=one.spec.runs.seeds,
        flops_per_sample=one.flops_per_sample,
        total=total,
    )


def _of_plan(plan: Plan | None) -> dict[str, Any]:
    """Return the fields of a row that only a plan has."""
    if plan is None:
        return dict.fromkeys(("p_oom", "step_time_s", "samples", "memory_capacity_bytes"))
    return {
        "p_oom": plan.p_oom,
        "step_time_s": plan.step_time_s.value,
        "step_parts": _parts(plan.breakdown_s),
        "memory_parts": _parts(plan.memory_breakdown_bytes),
        "memory_capacity_bytes": plan.peak_memory_bytes.capacity,
        "samples": _samples(plan),
    }


def _samples(plan: Plan) -> float | None:
    """Return the samples that a run of a plan trains on."""
    if plan.run is None:
        return None
    trained = plan.run.trained_samples
    return float(plan.run.steps * plan.global_batch) if trained is None else trained


def _parts(of: object) -> dict[str, float]:
    """Return the parts of a breakdown that are not nothing."""
    return {name: value for name, value in vars(of).items() if value}


def _of_runs(cost: RunCostOf, name: str, runs: float) -> float | None:
    run = None if cost.plan is None else cost.plan.run
    value = None if run is None else getattr(run, name)
    return None if value is None else value * runs
