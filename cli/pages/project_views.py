"""What the page about a project shows: its budget's burn-down, and its experiments in time.

The plan is that of its newest kept report; what is spent is what the store has now.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from markupsafe import Markup

from ... import api
from ...api.projects.spending import with_launches
from ...launcher.store.launch_record import LaunchRecord
from ...planner.budget.report.report import BudgetReport
from ...planner.budget.report.rows import ExperimentRow
from ..render.report.figures import about_usd, least, usd
from ..render.report.tables.burn_down import burn_down
from .burn_charts import budget_burn_down
from .launch_rows import attempt_spans
from .page import Amount, Cell, Figure, Link, Rows, Tile, Tiles, View
from .time_line import Span, SpanRow, time_line
from .views import report

MOST_ROWS = 40
"""Experiments of the time line, the dearest; the table has all."""
LEGEND = (
    ("spent", "spent"),
    ("planned", "planned"),
    ("likely", "80 % range"),
)
SPANS = (
    ("likely", "planned"),
    ("open", "open"),
    ("good", "succeeded"),
    ("cut", "stopped"),
    ("bad", "failed"),
)


def project(key: str, now: datetime) -> View:
    """Return the newest kept report of a project against what its launches have spent until now.

    Raises:
        UsageError: No report of that key is kept.
    """
    made = with_launches(report(key), now)
    spent = sum((one.usd for one in made.spent), Decimal(0))
    context = api.launches.context(now=lambda: now)
    plans = [row.plan_id for row in made.experiments if row.plan_id is not None]
    runs: dict[str, list[LaunchRecord]] = {}
    for one in context.ledger.of_plans(plans):
        runs.setdefault(one.plan, []).append(one)
    file = shlex.quote(made.project.file or "gpuplan.yaml")
    return View(
        title=made.project.name,
        subtitle=" · ".join(
            text
            for text in (
                made.project.team,
                made.project.owner,
                f"{made.project.start}, {made.project.months} months",
            )
            if text
        ),
        links=(Link("The whole report", f"/report/{key}"),),
        note=f"Planned {datetime.fromisoformat(made.generated_at).astimezone():%Y-%m-%d %H:%M %Z};"
        f" spent is counted until {now.astimezone():%Y-%m-%d %H:%M:%S %Z}, from the store alone.",
        commands=(f"gpuplan report {file}", f"gpuplan report {file} -o report.html"),
        refreshes=True,
        blocks=(
            _tiles(made, spent),
            Figure(
                caption="Burn-down: what is left of the budget, planned and now",
                svg=budget_burn_down(
                    burn_down(made),
                    budget_usd=made.budget_usd,
                    spent_usd=spent if made.spent else None,
                    now=now,
                ),
                legend=LEGEND,
                text="" if made.spent else "No launch of one of its plans was made yet.",
            ),
            Figure(
                caption="When each experiment is planned, and when its launches ran",
                svg=_time_line(made, runs, now),
                legend=SPANS if runs else SPANS[:1],
            ),
            _experiments(made, runs),
            _months(made),
        ),
    )


def _tiles(made: BudgetReport, spent: Decimal) -> Tiles:
    ranges = f"{about_usd(made.total.p10_usd)} to {about_usd(made.total.p90_usd)}"
    share = spent / made.budget_usd if made.budget_usd else Decimal(0)

    def known(amount_usd: Decimal) -> str:
        return usd(least(amount_usd, made.is_lower_bound))

    return Tiles(
        tiles=(
            Tile("Budget", known(made.budget_usd), f"with {usd(made.contingency_usd)} contingency"),
            Tile("Planned", known(made.total.usd), f"80 % range {ranges}"),
            Tile("Spent until now", usd(spent), f"{share:.0%} of the budget".replace("%", " %")),
            Tile(
                "Will come to",
                known(made.will_come_to_usd),
                "launches as they are, all other runs as planned",
            ),
        )
    )


def _time_line(
    made: BudgetReport, runs: Mapping[str, Sequence[LaunchRecord]], now: datetime
) -> Markup | None:
    zone = now.astimezone().tzinfo
    first = datetime.combine(made.project.start.first_day, datetime.min.time(), zone)
    dearest = sorted(made.experiments, key=lambda row: -row.total.usd)[:MOST_ROWS]
    rows = []
    for row in (one for one in made.experiments if one in dearest):
        planned = Span(
            begin=first + timedelta(hours=row.begins_h),
            end=first + timedelta(hours=row.ends_h),
            kind="likely",
            title=f"{row.name}: planned, {_planned(row)}",
        )
        ran = [span for one in runs.get(row.plan_id or "", ()) for span in attempt_spans(one, now)]
        rows.append(SpanRow(name=row.name, link=None, spans=(planned, *ran), text=_planned(row)))
    return time_line(rows, now=now, label="Experiments in time; the table below has the sums.")


def _experiments(made: BudgetReport, runs: Mapping[str, Sequence[LaunchRecord]]) -> Rows:
    spent = _spent_by_experiment(made)
    return Rows(
        caption="Experiments: planned and spent",
        headings=("experiment", "on", ">runs", ">launches", ">open", ">planned", ">spent"),
        rows=tuple(_experiment_row(row, runs, spent) for row in made.experiments),
        empty="The project has no experiment.",
    )


def _spent_by_experiment(made: BudgetReport) -> dict[str | None, Decimal]:
    found: dict[str | None, Decimal] = {}
    for one in made.spent:
        found[one.experiment] = found.get(one.experiment, Decimal(0)) + one.usd
    return found


def _experiment_row(
    row: ExperimentRow,
    runs: Mapping[str, Sequence[LaunchRecord]],
    spent: Mapping[str | None, Decimal],
) -> tuple[Cell, ...]:
    of_row = runs.get(row.plan_id or "", ())
    amount = spent.get(row.name, Decimal(0))
    open_now = sum(one.is_open for one in of_row)
    return (
        row.name if row.plan_id is None else Link(row.name, f"/plan/{row.plan_id}"),
        row.devices,
        Amount(f"{row.runs:,}", row.runs),
        Amount(f"{len(of_row):,}", len(of_row)),
        Amount(f"{open_now:,}", open_now),
        Amount(_planned(row), row.total.usd),
        Amount(usd(amount), amount),
    )


def _planned(row: ExperimentRow) -> str:
    return usd(least(row.total.usd, row.total.lower_bound))


def _months(made: BudgetReport) -> Rows:
    return Rows(
        caption="Until the end of each month",
        headings=("until the end of", ">planned", ">80 % range", ">spent", ">left, spent"),
        rows=tuple(
            (
                row.month,
                Amount(usd(least(row.planned_usd, row.lower_bound)), row.planned_usd),
                Amount(f"{about_usd(row.low_usd)} to {about_usd(row.high_usd)}", row.high_usd),
                _known(row.spent_usd),
                _known(None if row.spent_usd is None else made.budget_usd - row.spent_usd),
            )
            for row in burn_down(made)
        ),
        empty="No month is planned.",
    )


def _known(amount: Decimal | None) -> Amount:
    return Amount("–" if amount is None else usd(amount), amount)  # noqa: RUF001
