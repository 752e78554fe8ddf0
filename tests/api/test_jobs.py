"""What is launched: a plan by its name, or a plan of an answer as it is."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_estimate, make_offer, make_plan, make_run
from fake_engine import Clock, FakeEngine

from gpuplan import api
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.lifecycle.engine import NoCapacityError
from gpuplan.launcher.prepare.prepared import Prepared
from gpuplan.launcher.prepare.request import LaunchRequest, parse_outputs
from gpuplan.launcher.skypilot import prices
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.origin import origin_of
from gpuplan.launcher.store.plan_file import given_plan
from gpuplan.planner.plan.answer.answer_parts import CatalogueFacts
from gpuplan.planner.plan.answer.estimate import Estimate

REQUEST = LaunchRequest(outputs=parse_outputs("s3://bucket/runs"), steps=5)
MODEL = "def build_model(): ...\ndef build_dataset(): ...\n"


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Estimate:
    """Return an estimate of net.py in this folder, which nobody has kept."""
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    return make_estimate(
        make_plan(run=make_run(), runnable=True),
        make_plan(2, layout="dp8", run=make_run(usd=4000.0), runnable=True),
        catalog=CatalogueFacts(snapshot_date=load_catalogue().snapshot_date, offers=1),
        generated_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def kept(answer: Estimate) -> None:
    origin = origin_of(api.model("net.py"), api.Question(), folder=Path.cwd(), offers=None)
    Store().keep(answer, inputs_hash="a", origin=origin)


def test_a_plan_of_an_answer_is_launched_with_its_model(answer: Estimate) -> None:
    prepared = api.launch(answer.plans[1], REQUEST, model=api.model("net.py"))
    assert prepared.plan is answer.plans[1]
    assert prepared.job is not None


def test_a_kept_plan_knows_its_model_whether_named_or_held(answer: Estimate) -> None:
    kept(answer)
    plan = answer.plans[0]
    named = api.launch(plan.id, REQUEST, unique=lambda: "aaaaaa", now=lambda: datetime(2026, 1, 1))
    held = api.launch(plan, REQUEST, unique=lambda: "aaaaaa", now=lambda: datetime(2026, 1, 1))
    assert named.answer() == held.answer()
    assert held.model == "net"


def test_a_plan_that_was_changed_is_not_taken_for_the_kept_one(answer: Estimate) -> None:
    kept(answer)
    changed = answer.plans[0].model_copy(update={"micro_batch": 8})
    assert given_plan(changed).origin is None
    assert given_plan(answer.plans[0]).origin is not None


def test_a_plan_on_another_provider_is_refused_as_when_it_is_named(answer: Estimate) -> None:
    with pytest.raises(UsageError, match="not on gcp"):
        api.launch(answer.plans[0], LaunchRequest(providers=("gcp",)), model="net.py")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    monkeypatch.setattr(prices, "skypilot_prices", lambda _task: [None])
    monkeypatch.setattr(
        "gpuplan.launcher.lifecycle.reconcile.cloud_instances.terminate_on_power_off",
        lambda _run, _regions: ["i-1"],
    )
    return FakeEngine(Clock(datetime.now(UTC)), usd_per_hour=Decimal("21.96"))


def test_without_capacity_the_next_best_plan_is_rented_where_it_may_be(
    answer: Estimate, engine: FakeEngine
) -> None:
    elsewhere = make_plan(2, offer=make_offer(provider="gcp"), run=make_run(), runnable=True)
    kept(answer.model_copy(update={"plans": (answer.plans[0], elsewhere)}))
    context = api.launches.context(engine=engine)
    first = api.launch(answer.plans[0], REQUEST)
    engine.no_capacity = True
    with pytest.raises(NoCapacityError) as refused:
        api.launches.rent(context, first)
    assert elsewhere.id in str(refused.value.fix)
    confirmed: list[str] = []

    def prepare_next(plan: api.Plan) -> Prepared:
        engine.no_capacity = False
        return api.launch(plan, REQUEST)

    record = api.launches.rent(
        context,
        api.launch(answer.plans[0], REQUEST),
        confirm=lambda prepared: confirmed.append(prepared.plan.id),
        prepare_next=prepare_next,
    )
    assert confirmed == [answer.plans[0].id, elsewhere.id]
    assert record.is_open


def test_nothing_is_rented_that_is_not_confirmed(answer: Estimate, engine: FakeEngine) -> None:
    def refuse(_prepared: Prepared) -> None:
        raise UsageError("no", fix="yes")

    kept(answer)
    with pytest.raises(UsageError):
        api.launches.rent(
            api.launches.context(engine=engine),
            api.launch(answer.plans[0], REQUEST),
            confirm=refuse,
        )
    assert engine.tasks == []
