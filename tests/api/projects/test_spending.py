"""A report has the launches of its plans, with what the store and the bills know of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_ranked_estimate
from fake_engine import Clock
from launch_records import RUN, make_record

from gpuplan import api
from gpuplan.cli.main import run
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.launch_record import Attempt
from gpuplan.launcher.store.launches import Ledger
from gpuplan.launcher.store.measured_steps import workload_key
from gpuplan.launcher.store.origin import origin_of
from gpuplan.launcher.store.spending_limits import SpendingLimits
from gpuplan.planner.plan.question import Question
from gpuplan.planner.predict.measured.known_runs import run_key
from gpuplan.profiles.user_model.spec import parse_model_spec

NOW = datetime(2027, 3, 20, tzinfo=UTC)
BILL = f"""\
BilledCost,ListCost,ChargePeriodStart,ProviderName,SubAccountId,Tags,BillingCurrency
3000,3600,2027-03-02T00:00:00Z,AWS,1,"{{""gpuplan-run"": ""{RUN}""}}",USD
"""


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """Keep an estimate, and a launch of its first plan that took 100 hours at $36."""
    answer = make_ranked_estimate()
    Store().keep(answer, inputs_hash="a")
    clock = Clock(NOW - timedelta(days=10))
    ledger = Ledger(Store(), now=clock)
    plan_id = answer.plans[0].id
    ledger.reserve(make_record(tmp_path, clock, plan=plan_id), SpendingLimits())
    ledger.reserve(make_record(tmp_path, clock, run="other-1-abcdef"), SpendingLimits())
    attempt = Attempt(
        number=1,
        spot=False,
        asked_at=clock(),
        began_at=clock(),
        ended_at=clock() + timedelta(hours=100),
        usd_per_hour=Decimal(36),
        command_usd=Decimal(3240),
        outcome="succeeded",
    )
    ended = {"state": "ended", "outcome": "succeeded", "attempts": (attempt,)}
    ledger.update(RUN, lambda one: one.model_copy(update=ended), what="ended")
    return plan_id


def test_a_report_has_the_launches_of_its_plans(plan: str) -> None:
    report = api.report_of_plans([plan], now=lambda: NOW)
    (row,) = report.spent
    assert (row.launch, row.experiment, row.usd, row.status) == (RUN, plan, 3600, "succeeded")
    assert row.planned_usd == report.experiments[0].run_usd and row.billed_usd is None
    (variance,) = report.variances
    assert variance.spent_usd == 3600 and variance.billed_usd is None
    assert variance.planned_usd == row.planned_usd
    parts = (
        variance.scope_usd,
        variance.failures_usd,
        variance.price_usd,
        variance.idle_usd,
        variance.speed_usd,
    )
    assert None not in parts and sum(one or 0 for one in parts) == variance.difference_usd


def test_a_bill_stands_beside_what_was_counted(plan: str, tmp_path: Path) -> None:
    (tmp_path / "bill.csv").write_text(BILL)
    found = api.import_actuals([tmp_path / "bill.csv"], now=lambda: NOW)
    assert found.launches[0].counted_usd == 3600 and found.launches[0].drift == 0
    report = api.report_of_plans([plan], now=lambda: NOW)
    assert report.spent[0].billed_usd == 3000 and report.variances[0].billed_usd == 3000


@pytest.mark.parametrize("form", ["markdown", "json", "table"])
def test_every_format_shows_it(plan: str, form: str, capsys) -> None:
    assert run(["report", plan, "--format", form]) == 0
    assert "3600" in capsys.readouterr().out.replace(",", "") or form == "table"


def test_html_says_why_it_differs(plan: str, tmp_path: Path) -> None:
    assert run(["report", plan, "-o", str(tmp_path / "report.html")]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "Launches that have ended, against their plan" in text


PROJECT = """\
name: Net study
start: 2027-01
months: 6
experiments:
  main: {{plan: {plan}}}
"""


def test_launches_of_a_project_at_another_price_or_outside_its_plan(
    plan: str, tmp_path: Path
) -> None:
    file = tmp_path / "gpuplan.yaml"
    file.write_text(PROJECT.format(plan=plan))
    (row,) = api.report(file, now=lambda: NOW).experiments
    assert row.plan_key is not None
    clock = Clock(NOW - timedelta(days=9))
    ledger = Ledger(Store(), now=clock)

    def keep(number: int, **changes: object) -> None:
        facts = {"plan": "0123456789", "model": None, "project": "elsewhere", **changes}
        record = make_record(tmp_path, clock, run=f"net-{number}-00000{number}", **facts)
        ledger.reserve(record, SpendingLimits())

    keep(1, plan_key=row.plan_key, project="net-study")
    keep(2, project="elsewhere", project_file=str(file.resolve()))
    keep(3, plan=plan, project_file="/other/gpuplan.yaml")
    keep(4, plan_key=row.plan_key)
    found = api.report(file, now=lambda: NOW)
    spent = {one.launch: (one.experiment, one.matched_by) for one in found.spent}
    assert spent == {
        RUN: ("main", "plan"),
        "net-1-000001": ("main", "machines"),
        "net-2-000002": (None, None),
    }


def test_a_plan_at_another_price_is_found_by_its_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def build_model(): ...\n")
    spec = parse_model_spec("net.py")
    answer = make_ranked_estimate()
    origin = origin_of(spec, Question(), folder=tmp_path, offers=None)
    Store().keep(answer, inputs_hash="a", origin=origin)
    plan = answer.plans[0]
    clock = Clock(NOW - timedelta(days=9))
    record = make_record(
        tmp_path, clock, plan="0123456789", plan_key=run_key(plan), workload=workload_key(spec)
    )
    Ledger(Store(), now=clock).reserve(record, SpendingLimits())
    report = api.report_of_plans([plan.id], now=lambda: NOW)
    assert report.experiments[0].workload == record.workload
    assert [(one.launch, one.matched_by) for one in report.spent] == [(RUN, "workload")]


def test_the_page_says_how_each_was_found_and_what_is_outside(plan: str, tmp_path: Path) -> None:
    file = tmp_path / "gpuplan.yaml"
    file.write_text(PROJECT.format(plan=plan))
    clock = Clock(NOW)
    stray = make_record(tmp_path, clock, run="net-9-999999", project_file=str(file.resolve()))
    ledger = Ledger(Store(), now=clock)
    ledger.reserve(stray, SpendingLimits())
    ended = {"state": "ended", "outcome": "failed"}
    ledger.update(stray.run, lambda one: one.model_copy(update=ended), what="ended")
    assert run(["report", str(file), "-o", str(tmp_path / "report.html"), "-q"]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "its plan" in text and text.count("outside the plan") >= 2
