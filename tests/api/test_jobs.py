"""What is launched: a plan by its name, or a plan of an answer as it is."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from answers import make_estimate, make_plan, make_run

from gpuplan import api
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.prepare.request import LaunchRequest, parse_outputs
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.origin import origin_of
from gpuplan.launcher.store.plan_file import given_plan
from gpuplan.planner.plan.plan import CatalogueFacts, Estimate

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
