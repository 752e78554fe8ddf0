"""A plan that was estimated here, and an engine in memory that launches it."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_estimate, make_offer, make_plan, make_run
from fake_engine import Clock, FakeEngine

from gpuplan.catalog.clouds import connect as connecting
from gpuplan.catalog.clouds.interface import CloudError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.lifecycle.reconcile import cloud_instances
from gpuplan.launcher.skypilot import engine as sky_engine
from gpuplan.launcher.skypilot import prices
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.origin import origin_of
from gpuplan.planner.plan.answer.answer_parts import CatalogueFacts
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Question
from gpuplan.profiles.user_model.spec import parse_model_spec


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return the plan that was estimated here: 19,073 steps of 0.412 s on one p4d.24xlarge."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def build_model(): ...\ndef build_dataset(): ...\n")
    kept = make_plan(run=make_run(), runnable=True)
    catalogue = load_catalogue()
    answer = make_estimate(
        kept,
        make_plan(2, offer=make_offer(provider="gcp"), run=make_run(usd=4000.0), runnable=True),
        catalog=CatalogueFacts(snapshot_date=catalogue.snapshot_date, offers=1),
        generated_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    spec = parse_model_spec("net.py", params={"width": 4})
    origin = origin_of(spec, Question(), folder=Path.cwd(), offers=None)
    Store().keep(answer, inputs_hash="a", origin=origin)
    return kept


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Return the engine that stands in for SkyPilot, on a clock that begins now."""
    fake = FakeEngine(Clock(datetime.now(UTC)), usd_per_hour=Decimal("21.96"))
    monkeypatch.setattr(sky_engine, "SkyEngine", lambda: fake)
    monkeypatch.setattr(cloud_instances, "terminate_on_power_off", lambda _run, _regions: ["i-1"])
    monkeypatch.setattr(prices, "skypilot_prices", lambda _task: [None])
    # Whether an account may start machines is asked before they are rented, of nobody here.
    nobody = CloudError("no credentials", fix="log in.")
    monkeypatch.setattr(connecting, "connect", lambda _name: nobody)
    return fake
