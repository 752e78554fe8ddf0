"""What stopped the launches that the store keeps is what an estimate and a launch count with."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from answers import make_estimate, make_offer, make_plan, make_run
from fake_engine import START, Clock
from launch_records import make_record

from gpuplan import api
from gpuplan.api.answers import known_stops
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.prepare.request import LaunchRequest, parse_outputs
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.launch_record import Attempt, LaunchRecord
from gpuplan.launcher.store.launches import default_ledger
from gpuplan.launcher.store.spending_limits import SpendingLimits
from gpuplan.planner.cost.bought import stops_bought
from gpuplan.planner.plan.answer.answer_parts import CatalogueFacts
from gpuplan.planner.plan.answer.estimate import Estimate
from gpuplan.planner.plan.plan import Plan, Stops
from gpuplan.profiles.user_model.spec import ModelSpec

A100 = "A100-40GB-SXM"
MODEL = """
import torch

def build_model():
    return torch.nn.Linear(8, 1)

def make_batch(batch_size):
    return (torch.randn(batch_size, 8),)

def compute_loss(model, batch):
    return model(*batch).square().mean()

def build_dataset():
    return torch.utils.data.TensorDataset(torch.randn(64, 8))
"""


def lost_and_taken_up(tmp_path: Path, *, hours: float, stops: int) -> LaunchRecord:
    """Return a launch on eight A100 whose machines were lost so often, each time after `hours`."""
    span: dict[str, Any] = {
        "spot": False,
        "asked_at": START,
        "began_at": START,
        "ended_at": START + timedelta(hours=hours),
    }
    attempts = [Attempt(number=i + 1, outcome="lost", **span) for i in range(stops)]
    attempts.append(Attempt(number=stops + 1, outcome="succeeded", **span))
    return make_record(
        tmp_path,
        Clock(),
        state="ended",
        outcome="succeeded",
        accelerator=A100,
        accelerators=8,
        provider="aws",
        attempts=tuple(attempts),
    )


def keep(record: LaunchRecord) -> None:
    default_ledger(lambda: START).reserve(record, SpendingLimits())


def on_a100(spec: ModelSpec) -> Estimate:
    question = api.Question(
        work=api.Work(samples=1e9, global_batch=64),
        machine=api.Machine(instances=("p4d.24xlarge",), max_nodes=1),
    )
    return api.estimate(spec, question)


def facts(plan: Plan) -> tuple[float, float, str]:
    assert plan.stops is not None and plan.run is not None and plan.run.expected_hours is not None
    return plan.stops.per_hour, plan.run.expected_hours, "; ".join(plan.stops.sources)


def test_an_estimate_learns_from_the_store_and_its_plans_keep_their_ids(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    spec = api.model(tmp_path / "net.py")
    before = on_a100(spec)
    assert known_stops().failures == {}
    keep(lost_and_taken_up(tmp_path, hours=10.0, stops=20))
    after = on_a100(spec)
    assert [one.id for one in after.plans] == [one.id for one in before.plans]
    rate, hours, source = facts(before.plans[0])
    own_rate, own_hours, own_source = facts(after.plans[0])
    # 210 hours of eight, of which the prior expects 0.074 stops; 20 were counted.
    assert own_rate == pytest.approx(rate * 24 / 4.074, rel=1e-3)
    assert own_hours > hours
    assert "your 21 runs on A100-40GB-SXM: 1,680 accelerator-hours, 20 stops" in own_source
    assert "your" not in source


def test_a_launch_counts_with_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    catalogue = load_catalogue()
    plan = make_plan(run=make_run(steps=2_000_000), runnable=True, offer=make_offer())
    bare = stops_bought(
        plan.model_copy(update={"stops": _some_stops()}), catalogue.accelerators[A100], "on-demand"
    )
    plan = plan.model_copy(update={"stops": bare})
    answer = make_estimate(
        plan,
        catalog=CatalogueFacts(snapshot_date=catalogue.snapshot_date, offers=1),
        generated_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    request = LaunchRequest(outputs=parse_outputs("s3://bucket/runs"))

    def restarts_usd() -> Decimal:
        prepared = api.launch(answer.plans[0], request, model=api.model("net.py"))
        (line,) = [one for one in prepared.cost.lines if one.name == "failures and restarts"]
        return line.usd

    before = restarts_usd()
    keep(lost_and_taken_up(tmp_path, hours=10.0, stops=20))
    assert restarts_usd() > 2 * before


def test_a_store_that_cannot_be_read_teaches_nothing() -> None:
    store = Store()
    store.path.parent.mkdir(parents=True, exist_ok=True)
    store.path.write_bytes(b"no database at all, and longer than a header of one would be" * 20)
    found = known_stops()
    assert (found.failures, found.launches) == ({}, 0)


def _some_stops() -> Stops:

    return Stops(
        per_hour=math.nan,
        per_hour_low=math.nan,
        per_hour_high=math.nan,
        checkpoint_bytes=1e9,
        stall_s=5.0,
        restart_s=600.0,
        wait_s=0.0,
    )
