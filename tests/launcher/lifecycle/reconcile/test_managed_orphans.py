"""A managed job that outlives its launch: the job is ended, and not the machines beneath it."""

from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import RUN, make_record

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.labels import slug
from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import EngineError, EngineJob
from gpuplan.launcher.lifecycle.reconcile.reconcile import (
    LabelledMachine,
    Listing,
    reconcile,
    take_down,
)
from gpuplan.launcher.lifecycle.resume import down, reconcile_run, resume
from gpuplan.launcher.lifecycle.transitions import ask, begin
from gpuplan.launcher.store.accounting import spent_usd
from gpuplan.launcher.store.launch_record import LaunchRecord
from gpuplan.launcher.store.spending_limits import SpendingLimits


@pytest.fixture
def orphan(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> LaunchRecord:
    """Return a launch taken back while its controller had its job already, an hour ago."""
    record = make_record(tmp_path, engine.clock, managed=True)
    record = ask(context, begin(context, record, SpendingLimits(), spot=True))
    monkeypatch.setattr(engine, "cancel_request", lambda _id: None)
    ended = down(context, record)
    assert (ended.outcome, engine.live()) == ("cancelled", [])
    engine.finish_requests()
    assert engine.live() == [record.cluster]
    engine.clock.pass_s(3600)
    return ended


def beneath(context: LaunchContext) -> Listing:
    machine = LabelledMachine(
        cloud="aws",
        region="us-east-1",
        instance_id="i-0abc",
        instance_type="p4d.24xlarge",
        run=slug(RUN),
        launched_at=None,
        store_id=context.ledger.store_id(),
        owner="ann",
    )
    return Listing(instances=(machine,), clouds=("aws",))


def test_down_ends_the_job_of_a_closed_launch(
    context: LaunchContext, engine: FakeEngine, orphan: LaunchRecord
) -> None:
    ended = down(context, orphan)
    assert engine.live() == []
    assert spent_usd(ended, now=engine.clock()) >= engine.billed_usd() > 36
    assert down(context, ended) == ended


def test_looking_at_it_ends_nothing_and_keeps_it_from_running_twice(
    context: LaunchContext, engine: FakeEngine, orphan: LaunchRecord
) -> None:
    assert reconcile_run(context, orphan) == (orphan, "unreachable")
    with pytest.raises(UsageError, match="its job may still run"):
        resume(context, orphan, SpendingLimits())
    assert engine.live() == [orphan.cluster]


def test_reconcile_ends_the_job_and_never_the_machine_beneath_it(
    context: LaunchContext, engine: FakeEngine, orphan: LaunchRecord
) -> None:
    engine.add_stray(f"{orphan.cluster}-1", RUN, store_id=context.ledger.store_id(), owner="ann")
    (found,) = reconcile(context, instances=lambda: beneath(context), owner="ann")
    assert (found.kind, found.is_orphan, found.instances) == ("orphan-cluster", True, ())
    assert f"managed job 1, whose machines SkyPilot starts again when they end: owned by {RUN}" in (
        found.text
    )
    terminated: list[LabelledMachine] = []
    take_down(context, found, terminate=terminated.extend)
    assert terminated == []
    assert orphan.cluster not in engine.live()
    ((kind, _),) = [(one.kind, one) for one in reconcile(context, owner="bob")]
    assert kind == "others", "the cluster of the fake, which no job of it ends"


def test_a_job_that_is_being_cancelled_is_no_orphan_and_its_machine_none(
    context: LaunchContext, engine: FakeEngine, orphan: LaunchRecord
) -> None:
    engine.cancelling(orphan.cluster)
    assert reconcile(context, instances=lambda: beneath(context), owner="ann") == []
    assert reconcile_run(context, orphan) == (orphan, "nothing")


def test_somebody_elses_job_is_listed(
    context: LaunchContext, engine: FakeEngine, orphan: LaunchRecord
) -> None:
    (found,) = reconcile(context, instances=lambda: beneath(context), owner="bob")
    assert (found.kind, found.owner) == ("others", "ann")
    assert engine.live() == [orphan.cluster]


def test_a_controller_that_is_stopped_is_not_started_for_the_question(
    context: LaunchContext,
    engine: FakeEngine,
    orphan: LaunchRecord,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine.add_stray("sky-jobs-controller-5a5a", None)

    def refuse() -> list[EngineJob]:
        raise EngineError("the controller does not answer")

    monkeypatch.setattr(engine, "managed_jobs", refuse)
    kinds = {one.kind: one.text for one in reconcile(context, owner="ann")}
    assert kinds["unknown"] == "managed jobs could not be listed: the controller does not answer"
    engine.set_status("sky-jobs-controller-5a5a", "stopped")
    assert [one.kind for one in reconcile(context, owner="ann")] == ["controller"]
