"""A store with something of everything that `gpuplan ui` shows; names in it attack."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

from answers import make_estimate, make_plan, make_ranked_estimate
from budget_reports import HOSTILE_NAMES, hostile_report, small_report

from gpuplan import api
from gpuplan.catalog.paths import data_dir
from gpuplan.cli.pages.views import key_of
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.launch_record import Attempt, LaunchRecord, PricedPlace
from gpuplan.launcher.store.launches import default_ledger
from gpuplan.launcher.store.reports import keep_report
from gpuplan.launcher.store.reports import key_of as report_key
from gpuplan.launcher.store.spending_limits import SpendingLimits
from gpuplan.planner.budget.project.months import Month
from gpuplan.planner.budget.report.report import BudgetReport

OPEN = "gpt2-20261123-091500-a1b2c3"
OVER = "llama-20261122-200000-d4e5f6"
HOSTILE = "x" * 260 + "\u202e<script>alert(1)</script>🚀"
PROJECT = Path("small/gpuplan.yaml")
HOSTILE_PROJECT = Path("hostile/gpuplan.yaml")


def launch(run: str, now: datetime, hours_ago: float, **changes: Any) -> LaunchRecord:
    """Return an open launch of $21.96 an hour that was planned with $40."""
    begin = now - timedelta(hours=hours_ago)
    attempts = changes.pop("attempts", (attempt(begin),))
    facts: dict[str, Any] = {
        "run": run,
        "state": "running",
        "created_at": begin - timedelta(minutes=4),
        "plan": "24d0a27b1e",
        "title": "dp8 mb4 bf16-amp on 1 x p4d.24xlarge",
        "model": "gpt2",
        "project": "gpt2",
        "owner": "ann",
        "folder": f"/nowhere/{run[-6:]}",
        "cluster": f"gp-{run[-6:]}",
        "managed": False,
        "nodes": 1,
        "places": (PricedPlace(infra="aws/us-east-1", usd_per_hour=Decimal("21.96")),),
        "usd_expected": Decimal("71.20"),
        "usd_low": Decimal("63.40"),
        "usd_high": Decimal("82.10"),
        "usd_worst": Decimal("96.00"),
        "reserved_usd": Decimal("96.00"),
        "billing_increment_s": 1.0,
        "minimum_s": 60.0,
        "results": f"s3://results/team/{run[:40]}",
        "out_dir": "/outputs",
        "pid": 1,
        "host": "nowhere",
        "attempts": attempts,
    }
    return LaunchRecord(**{**facts, **changes})


def attempt(began_at: datetime, number: int = 1, **changes: Any) -> Attempt:
    facts: dict[str, Any] = {
        "number": number,
        "spot": False,
        "asked_at": began_at - timedelta(minutes=3),
        "infra": "aws/us-east-1/us-east-1a",
        "instance_type": "p4d.24xlarge",
        "usd_per_hour": Decimal("21.96"),
        "began_at": began_at,
    }
    return Attempt(**{**facts, **changes})


def ended(run: str, now: datetime, ago_h: float, hours: float, outcome: str, **changes: Any):
    """Return a launch that ended so, so many hours after it began."""
    begin = now - timedelta(hours=ago_h)
    last = attempt(begin, ended_at=begin + timedelta(hours=hours), outcome=outcome)
    facts = {"state": "ended", "outcome": outcome, "attempts": (last,), **changes}
    return launch(run, now, ago_h, **facts)


def fill(now: datetime) -> dict[str, str]:
    """Keep estimates, reports and launches in the store of GPUPLAN_HOME; return their pages."""
    estimate = make_ranked_estimate()
    store = Store()
    store.keep(estimate, inputs_hash="ranked")
    name = "".join(HOSTILE_NAMES)
    worded = estimate.workload.model_copy(update={"name": name})
    hostile = make_estimate(make_plan(2, notes=HOSTILE_NAMES), workload=worded, notes=HOSTILE_NAMES)
    store.keep(hostile, inputs_hash="hostile")
    report = begun_report(now)
    keep_report(report, data_dir() / PROJECT)
    keep_report(hostile_report(), data_dir() / HOSTILE_PROJECT)
    first = report.experiments[0].plan_id
    for record in _launches(now, str(first), estimate.plans[0].id):
        keep(record, now)
    keys = {one.workload.name == name: key_of(one) for one in api.kept_estimates()}
    project, attacking = (report_key(data_dir() / one) for one in (PROJECT, HOSTILE_PROJECT))
    return {
        "overview": "/",
        "launches": "/launches",
        "prices": "/prices",
        "project": f"/project/{project}",
        "hostile-project": f"/project/{attacking}",
        "estimate": f"/estimate/{keys[False]}",
        "hostile-estimate": f"/estimate/{keys[True]}",
        "plan": f"/plan/{estimate.plans[0].id}",
        "hostile-plan": f"/plan/{hostile.plans[0].id}",
        "launch": f"/launch/{OPEN}",
        "over": f"/launch/{OVER}",
        "hostile-launch": f"/launch/{quote(HOSTILE, safe='')}",
        "report": f"/report/{project}",
        "missing": "/nowhere",
    }


def begun_report(now: datetime) -> BudgetReport:
    """Return the small report as if its project had begun a month ago."""
    made = small_report()
    shift = Month.of(now.date()).plus(-1)
    moved = {one.name: shift.plus(index) for index, one in enumerate(made.by_month)}
    facts = made.project.model_copy(update={"start": shift})
    months = tuple(one.model_copy(update={"name": str(moved[one.name])}) for one in made.by_month)
    return made.model_copy(update={"project": facts, "by_month": months, "spent": ()})


def keep(record: LaunchRecord, now: datetime) -> None:
    """Keep a launch as it is, with an event."""
    ledger = default_ledger(lambda: now)
    ledger.reserve(record, SpendingLimits())
    ledger.update(record.run, lambda one: one, what="machines are paid for")


def _launches(now: datetime, of_project: str, plan: str) -> list[LaunchRecord]:
    lost = attempt(
        now - timedelta(hours=9),
        usd_per_hour=Decimal("9.71"),
        spot=True,
        ended_at=now - timedelta(hours=6.5),
        outcome="preempted",
    )
    again = attempt(now - timedelta(hours=2), 2)
    return [
        ended("gpt2-20261101-080000-000001", now, 500, 3.1, "succeeded", plan=of_project),
        ended("gpt2-20261105-080000-000002", now, 420, 0.4, "failed", why="loss is nan"),
        ended("gpt2-20261112-080000-000003", now, 260, 44.0, "succeeded", plan=of_project),
        ended("vit-20261118-080000-000004", now, 110, 20.0, "guarded", plan=plan),
        launch(
            OVER, now, 14.2, attempts=(lost, attempt(now - timedelta(hours=2.95), 2)), plan=plan
        ),
        launch("vit-20261123-060000-b7c8d9", now, 9, attempts=(lost, again), plan=of_project),
        launch(OPEN, now, 1.2, plan=plan),
        launch("asked-20261123-090000-aaaaaa", now, 0.1, state="requested", attempts=()),
        launch(HOSTILE, now, 0.5, project="".join(HOSTILE_NAMES), title="".join(HOSTILE_NAMES)),
    ]
