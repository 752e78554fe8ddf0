"""The pages of `gpuplan ui`: each is there, with data and without, and names on it stay text."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from answers import make_estimate, make_plan, make_ranked_estimate, make_unworked_estimate
from budget_reports import HOSTILE_NAMES, hostile_report, small_report
from fake_engine import Clock, FakeEngine
from kept_pages import attempt, launch
from kept_pages import keep as keep_launch
from launch_records import RUN, make_context, make_record
from starlette.testclient import TestClient

from gpuplan import api
from gpuplan.cli.pages import views
from gpuplan.cli.pages.app import make_app
from gpuplan.cli.render.report.formats.html import render_html
from gpuplan.launcher.lifecycle.transitions import ask, begin, wait_started
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.reports import keep_report
from gpuplan.launcher.store.spending_limits import SpendingLimits
from gpuplan.planner.plan.answer.estimate import Estimate

TOKEN, PORT = "a-token", 8765
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
PAGES = ("/", "/launches", "/prices")


def client_of(**facts) -> TestClient:
    """Return a browser that has opened the printed address."""
    app = make_app(token=TOKEN, port=PORT, now=lambda: NOW, **facts)
    client = TestClient(app, base_url=f"http://127.0.0.1:{PORT}")
    assert client.get(f"/?token={TOKEN}", follow_redirects=False).status_code == 303
    return client


@pytest.fixture
def client() -> TestClient:
    return client_of()


@pytest.fixture
def kept() -> Estimate:
    estimate = make_ranked_estimate()
    Store().keep(estimate, inputs_hash="a")
    return api.kept_estimates()[0]


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.parametrize("path", PAGES)
def test_every_page_of_an_empty_store_says_that_there_is_nothing(client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert path == "/prices" or re.search("Next: gpuplan|Nothing is open", answer.text)


def test_looking_at_an_empty_store_makes_none(client) -> None:
    client.get("/")
    assert not Store().path.exists()


def test_the_overview_leads_to_estimates_and_reports(client, kept, tmp_path: Path) -> None:
    keep_report(small_report(), tmp_path / "gpuplan.yaml")
    text = client.get("/").text
    (key,) = re.findall(r'href="/project/(\w+)"', text)
    assert f'href="/report/{key}"' in client.get(f"/project/{key}").text
    assert client.get(f"/report/{key}").status_code == 200
    assert client.get(f"/estimate/{views.key_of(kept)}").status_code == 200
    assert f"/estimate/{views.key_of(kept)}" in text


def test_an_estimate_has_its_front_and_all_its_plans(client, kept: Estimate) -> None:
    text = client.get(f"/estimate/{views.key_of(kept)}").text
    assert all(f'href="/plan/{plan.id}"' in text for plan in kept.plans)
    drawn = [plan for plan in kept.plans if plan.job is not None and plan.job.usd is not None]
    assert text.count("<circle") == len(drawn) > 2
    assert text.count('class="chosen"') == 1


def test_a_page_of_plans_says_first_which_to_rent_and_what_is_against_each(client, kept) -> None:
    text = client.get(f"/estimate/{views.key_of(kept)}").text
    first, _, rest = text.partition("<figure")
    assert kept.best is not None and kept.recommended is not None
    assert kept.best.devices in first and escape(kept.recommended.reason) in first
    reserved = kept.plans[0].model_copy(update={"usually_reserved": True, "needs_port": True})
    assert "quota, port" in views._plan_row(reserved)
    assert ">remarks<" in rest


def test_a_plan_is_drawn_and_sorted_at_the_cost_that_is_written(kept: Estimate) -> None:
    """The dot and the order of the table left out what is paid beside the machines."""
    plan = next(one for one in kept.plans if one.whole_job is not None and one.whole_job.usd)
    assert plan.whole_job is not None and plan.whole_job.usd is not None
    total = plan.whole_job.usd + Decimal(50)
    job = plan.whole_job.model_copy(update={"total_usd": total})
    dearer = plan.model_copy(update={"whole_job": job})
    (point,) = views._points(kept.model_copy(update={"plans": (dearer,)}))
    assert point.usd == dearer.usd_ends and point.usd[1] == float(total)
    assert views._cost(dearer).value == float(total)


def test_lines_of_no_cost_are_left_out_and_small_amounts_are_not_nothing(client) -> None:
    """ "staging 0.00 $0" and "billing increment 0.00 $0.01" stood there."""
    estimate = make_ranked_estimate()
    plan = next(one for one in estimate.plans if one.job is not None and one.job.cost_lines)
    assert plan.job is not None
    line = plan.job.cost_lines[0]
    nothing = line.model_copy(update={"name": "staging", "quantity": 0.0, "usd": Decimal(0)})
    little = line.model_copy(update={"name": "billing", "quantity": 0.0004, "usd": Decimal("0.01")})
    assert plan.run is not None
    run = plan.run.model_copy(update={"cost_lines": (nothing, little)})
    changed = plan.model_copy(update={"run": run, "whole_job": None})
    Store().keep(estimate.model_copy(update={"plans": (changed,)}), inputs_hash="c")
    text = client.get(f"/plan/{plan.id}").text
    assert ">billing<" in text and ">0.0004<" in text and ">staging<" not in text


def test_an_estimate_without_work_has_no_front(client) -> None:
    Store().keep(make_unworked_estimate(), inputs_hash="b")
    answer = client.get(f"/estimate/{views.key_of(api.kept_estimates()[0])}")
    assert answer.status_code == 200
    assert "<svg" not in answer.text and "unknown" in answer.text


def test_a_plan_has_bars_and_the_command_that_prints_it(client, kept: Estimate) -> None:
    plan = kept.plans[0]
    text = client.get(f"/plan/{plan.id}").text
    assert "optimizer state" in text and "peak" in text and text.count('<ul class="bars"') == 2
    assert f"<code>gpuplan show {plan.id}</code>" in text


def test_a_report_is_that_of_the_command(tmp_path: Path) -> None:
    project = tmp_path / "gpuplan.yaml"
    keep_report(small_report(), project)
    client = client_of(project=str(project))
    answer = client.get(f"/?token={TOKEN}")
    assert answer.url.path.startswith("/project/")
    answer = client.get(answer.url.path.replace("/project/", "/report/"))
    assert answer.text == render_html(small_report(), draws=False)
    assert "script" not in answer.headers["content-security-policy"]


def test_a_project_without_a_report_says_how_to_make_one() -> None:
    answer = client_of(project="my project/gpuplan.yaml").get("/project")
    assert answer.status_code == 404
    assert "gpuplan report &#39;my project/gpuplan.yaml&#39;" in answer.text


def test_launches_show_spent_against_planned(client, tmp_path: Path) -> None:
    engine = FakeEngine(Clock(NOW))
    context = make_context(tmp_path, engine)
    context.ledger._store = Store()
    record = make_record(tmp_path, engine.clock)
    wait_started(context, ask(context, begin(context, record, SpendingLimits(), spot=False)))
    text = client.get("/launches").text
    assert RUN in text and "1 open of 1" in text
    assert "$40" in text and "$38 to $45" in text and "aws/us-east-1" in text
    assert 'data-refresh-s="10"' in text
    page = client.get(f"/launch/{RUN}").text
    assert "Burn-down" in page and f"<code>gpuplan stop {RUN}</code>" in page


def test_dollars_that_are_a_bound_are_marked(client) -> None:
    at = NOW - timedelta(hours=3)
    lost = attempt(at, ended_at=at + timedelta(hours=1), outcome="lost")
    for run, change in (
        ("net-20261122-090000-aaaaaa", {"is_bound": True}),
        ("net-20261122-090000-bbbbbb", {"unknown_from": at + timedelta(minutes=30)}),
    ):
        ends = {"state": "ended", "outcome": "lost"}
        one = launch(run, NOW, 3, attempts=(lost.model_copy(update=change),), **ends)
        keep_launch(one, NOW)
    text = client.get("/launches").text
    assert "≤ $22" in text and "≥ $11" in text
    assert re.search(r"\? \$3\d", text), "a sum of both is neither"
    assert "at least, none runs" in client.get("/launch/net-20261122-090000-bbbbbb").text


def test_a_project_will_come_to_no_less_than_its_open_launches_have_spent(
    client, tmp_path: Path
) -> None:
    project = tmp_path / "gpuplan.yaml"
    keep_report(small_report(), project)
    (key,) = re.findall(r'href="/project/(\w+)"', client.get("/").text)
    row = next(one for one in small_report().experiments if one.plan_id is not None)
    clock = Clock(NOW - timedelta(hours=9000))
    engine = FakeEngine(clock)
    context = make_context(tmp_path, engine)
    context.ledger._store = Store()
    record = make_record(tmp_path, clock, plan=row.plan_id)
    wait_started(context, ask(context, begin(context, record, SpendingLimits(), spot=False)))
    text = client.get(f"/project/{key}").text
    (spent,), (ends,) = (
        re.findall(rf"{name}.*?\$([\d,.]+)", text, re.DOTALL)
        for name in ("Spent until now", "Will come to")
    )
    total = small_report().total.usd
    assert Decimal(ends.replace(",", "")) >= Decimal(spent.replace(",", "")) > total


def test_prices_have_ages(client) -> None:
    text = client.get("/prices").text
    assert "aws" in text and re.search(r"[1-9]\d* days", text)


@pytest.mark.parametrize(
    "path",
    [
        "/plan/xyz",
        "/plan/0123456789",
        "/estimate/none",
        "/report/../x",
        "/nowhere",
        "/a/b",
        "/launch/no",
        "/project/no",
    ],
)
def test_what_is_not_there_is_said(client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "This page is not there" in answer.text and "To fix:" in answer.text


def test_a_damaged_store_is_said_and_no_traceback(client) -> None:
    Store().path.parent.mkdir(parents=True, exist_ok=True)
    Store().path.write_bytes(b"no database" * 100)
    answer = client.get("/")
    assert answer.status_code == 500
    assert "cannot be used" in answer.text and "Traceback" not in answer.text


def test_hostile_names_stay_text(client, kept: Estimate, tmp_path: Path) -> None:
    name = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e"
    worded = kept.workload.model_copy(update={"name": name})
    hostile = make_estimate(
        make_plan(notes=(name,)), workload=worded, notes=(name,), generated_at=kept.generated_at
    )
    Store().keep(hostile, inputs_hash="h")
    keep_report(hostile_report(), tmp_path / "gpuplan.yaml")
    assert HOSTILE_NAMES
    key = next(views.key_of(e) for e in api.kept_estimates() if e.workload.name == name)
    for path in ("/", f"/estimate/{key}", f"/plan/{hostile.plans[0].id}"):
        text = client.get(path).text
        tags = Tags(text).found
        assert "\u202e" not in text
        assert [attrs.get("src") for tag, attrs in tags if tag == "script"] == ["/static/ui.js"]
        assert not [tag for tag, _ in tags if tag in ("img", "iframe", "form")]
        kinds = {attr for _, attrs in tags for attr in attrs}
        assert not [one for one in kinds if one.startswith("on") or one == "style"]


def test_files_of_the_pages_are_served_as_what_they_are(client) -> None:
    assert client.get("/static/ui.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/static/ui.css").headers["content-type"].startswith("text/css")
    script = client.get("/static/ui.js").text
    assert "eval" not in script and "innerHTML" not in script and "POST" not in script
