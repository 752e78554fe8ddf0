"""Machines that are there and do not answer: they may train, so only their owner ends them."""

from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import RUN, launched, make_context, make_record

from gpuplan import api
from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import ClusterStatus, EngineError
from gpuplan.launcher.lifecycle.reconcile.reconcile import reconcile
from gpuplan.launcher.lifecycle.resume import down, reconcile_run, resume, stop
from gpuplan.launcher.lifecycle.transitions import ask, attend, begin
from gpuplan.launcher.store.accounting import spent_usd
from gpuplan.launcher.store.spending_limits import SpendingLimits


def hide(engine: FakeEngine, name: str, how: str) -> None:
    """Let machines answer no more: SkyPilot then says that they start, or fails to ask them."""
    if how == "starting":
        engine.set_status(name, "starting")
    else:
        engine.silent = True


@pytest.mark.parametrize("how", ["starting", "silent"])
@pytest.mark.parametrize("kept_job", [True, False])
def test_a_network_that_blocks_ssh_does_not_end_a_run(
    tmp_path: Path, engine: FakeEngine, how: str, kept_job: bool
) -> None:
    said: list[str] = []
    context = make_context(tmp_path, engine, tell=said.append)
    record = launched(context, make_record(tmp_path, engine.clock))
    if not kept_job:  # The command that launched it was killed before it was told.
        record = context.ledger.update(
            RUN,
            lambda one: one.with_last(job_id=None).model_copy(update={"state": "requested"}),
            what="never written",
        )
    hide(engine, record.cluster, how)
    after, finding = reconcile_run(context, record)
    assert (finding, after.is_open, engine.live()) == ("unreachable", True, [record.cluster])
    assert "gpuplan down" in said[-1]
    (found,) = reconcile(context)
    assert (found.kind, found.is_orphan, engine.live()) == ("unknown", False, [record.cluster])
    assert "$36.00 an hour" in found.text
    with pytest.raises(UsageError, match="still runs"):
        resume(context, after, SpendingLimits())
    engine.silent = False
    engine.set_status(record.cluster, "up")
    assert reconcile_run(context, after)[1] == "training"
    ended = attend(context, context.ledger.get(RUN))
    assert (ended.outcome, engine.live()) == ("succeeded", [])


@pytest.mark.parametrize("how", ["starting", "silent"])
def test_down_ends_machines_that_do_not_answer(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, how: str
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    hide(engine, record.cluster, how)
    engine.clock.pass_s(3600)
    if how == "silent":
        with pytest.raises(EngineError, match="does not answer"):
            stop(context, record, wait=lambda _seconds: None)
    ended = down(context, record)
    assert (ended.outcome, engine.live()) == ("stopped", [])
    assert spent_usd(ended, now=engine.clock()) >= engine.billed_usd() > 36


def test_machines_whose_start_failed_are_torn_down_even_so(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = make_record(tmp_path, engine.clock)
    asked = ask(context, begin(context, record, SpendingLimits(), spot=False))
    engine.breaks_while_starting = True
    engine.finish_requests()
    engine.set_status(asked.cluster, "starting")
    after, finding = reconcile_run(context, asked)
    assert (finding, after.outcome, engine.live()) == ("broken", "failed", [])


@pytest.mark.parametrize(
    ("fetch", "status", "finding"),
    [
        ("results", "stopped", "unreachable"),
        (None, "stopped", "broken"),
    ],
)
def test_results_on_the_disk_of_a_machine_that_powered_off_are_not_deleted(
    tmp_path: Path,
    context: LaunchContext,
    engine: FakeEngine,
    fetch: str | None,
    status: ClusterStatus,
    finding: str,
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, fetch=fetch))
    engine.set_status(record.cluster, status)
    after, found = reconcile_run(context, record)
    assert (found, after.is_open) == (finding, fetch is not None)
    assert engine.live() == ([record.cluster] if fetch else [])


def test_down_ends_machines_whose_results_cannot_be_brought(
    tmp_path: Path, engine: FakeEngine
) -> None:
    said: list[str] = []
    context = make_context(tmp_path, engine, tell=said.append)
    record = launched(context, make_record(tmp_path, engine.clock, fetch=str(tmp_path / "results")))
    engine.end_job(record.cluster, "failed")

    def refuse(*_: object) -> None:
        raise EngineError("the disk is full")

    engine.copy_back = refuse  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="disk is full"):
        reconcile_run(context, record)
    ended = down(context, record)
    assert (ended.outcome, engine.live(), engine.copied) == ("failed", [], [])
    assert "the disk is full" in said[-1]
    assert "not brought" in (ended.why or "")
    assert spent_usd(ended, now=engine.clock()) >= engine.billed_usd()


def test_a_launch_that_cannot_be_looked_at_hides_no_other(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    first = launched(context, make_record(tmp_path, engine.clock))
    engine.clock.pass_s(60)
    other = launched(context, make_record(tmp_path, engine.clock, run="net-20261122-120000-b2b2b2"))
    engine.end_job(first.cluster, "failed")
    ask_past = engine.requests

    def refuse(cluster: str) -> object:
        if cluster == other.cluster:
            raise EngineError("the cloud does not say")
        return ask_past(cluster)

    engine.requests = refuse  # type: ignore[method-assign,assignment]
    found = {record.run: finding for record, finding in api.launches.look_at(context)}
    assert found == {other.run: "unreachable", first.run: "job-ended"}
    assert engine.live() == [other.cluster]
    with pytest.raises(EngineError, match="does not say"):
        api.launches.look_at(context, [other.run])


@pytest.mark.parametrize("status", ["starting", "stopped", "up"])
def test_a_request_that_skypilot_forgot_may_have_started_the_job(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, status: ClusterStatus
) -> None:
    """Its command was killed before it was told; requests are kept for a day."""
    record = make_record(tmp_path, engine.clock, fetch=str(tmp_path / "results"))
    record = ask(context, begin(context, record, SpendingLimits(), spot=False))
    engine.finish_requests()
    engine.clock.pass_s(26 * 3600)
    engine.forget_requests()
    engine.silent = status == "up"
    engine.set_status(record.cluster, status)
    after, finding = reconcile_run(context, record)
    assert (finding, after.is_open, engine.live()) == ("unreachable", True, [record.cluster])


def test_machines_that_say_they_have_no_job_and_those_that_never_came_are_closed(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = make_record(tmp_path, engine.clock)
    record = ask(context, begin(context, record, SpendingLimits(), spot=False))
    engine.forget_requests()
    assert reconcile_run(context, record)[1] == "not-started"
    idle = make_record(tmp_path, engine.clock, run="net-20261122-120000-b2b2b2")
    idle = ask(context, begin(context, idle, SpendingLimits(), spot=False))
    engine.finish_requests()
    engine.forget_requests()
    engine.forget_jobs(idle.cluster)
    assert reconcile_run(context, idle)[1] == "broken"
    assert (context.ledger.open(), engine.live()) == ([], [])
