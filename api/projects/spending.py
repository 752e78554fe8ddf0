"""Launches of the store that a report's experiments were carried out by."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from ...planner.budget.project.months import Month
from ...planner.budget.report.matching import Launched
from ...planner.budget.report.report import BudgetReport
from ...planner.budget.report.spent import Spend, with_spent

if TYPE_CHECKING:
    from ...launcher.store.launch_record import LaunchRecord


def with_launches(
    report: BudgetReport, now: datetime, *, project: str | None = None, file: Path | None = None
) -> BudgetReport:
    """Return a report with what the launches of its plans, and of its project, have cost.

    A launch that was made for another project's file is none of this one's.

    Args:
        report: as it was planned.
        now: the time until which open launches are counted.
        project: name of the project; None: the plans are of none.
        file: of the project; None where it has none.

    Raises:
        StoreError: the store cannot be read.
    """
    from ...launcher.labels import slug
    from ...launcher.store.bills.billing import billed_by_run
    from ...launcher.store.estimates import Store
    from ...launcher.store.launches import Ledger

    store = Store()
    ledger = Ledger(store, now=lambda: now)
    rows = report.experiments
    path = None if file is None else str(file.expanduser().resolve())
    own = {} if project is None else {one.run: one for one in ledger.of_project(project, path)}
    found = [
        *ledger.of_plans(row.plan_id for row in rows if row.plan_id is not None),
        *ledger.of_workloads(row.workload for row in rows if row.workload is not None),
    ]
    others = {one.run: one for one in found if project is None or one.project_file is None}
    records = {**others, **own}
    if not records:
        return report
    bills = billed_by_run(store)

    def spends() -> Iterator[Spend]:
        for one in records.values():
            billed = bills.get(slug(one.run))
            billed_usd = None if billed is None else billed.billed_usd
            yield spend_of(one, now, billed_usd, is_of_project=one.run in own)

    return with_spent(report, spends())


def spend_of(
    record: LaunchRecord, now: datetime, billed_usd: Decimal | None, *, is_of_project: bool = False
) -> Spend:
    """Return what the store knows of one launch."""
    from ...launcher.store.accounting import (
        ZERO,
        attempt_usd,
        idle_usd,
        spent_by_month,
        spent_usd,
    )

    last = record.last
    usd = spent_usd(record, now=now)
    last_usd = ZERO if last is None else attempt_usd(record, last, now=now)
    hour_usd = None if last is None else last.usd_per_hour
    return Spend(
        launch=record.run,
        launched=Launched(
            plan=record.plan,
            plan_key=record.plan_key,
            workload=record.workload,
            model=record.model,
            is_of_project=is_of_project,
        ),
        month=Month.of(record.created_at.date()),
        status=record.outcome or record.state,
        has_ended=not record.is_open,
        has_succeeded=record.outcome == "succeeded",
        usd=usd,
        lost_usd=usd - last_usd,
        idle_usd=ZERO if last is None else idle_usd(record, last, now=now),
        node_hour_usd=None if hour_usd is None else hour_usd / record.nodes,
        billed_usd=billed_usd,
        owner=record.owner,
        expected_usd=record.usd_expected,
        usd_by_month=spent_by_month(record, now=now),
    )
