"""A launch, a stop and a down that are cut off at any moment, and picked up: nothing is lost."""

import io
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from fake_engine import Clock, FakeEngine, Killed
from launch_records import RUN, launched, make_context, make_record

from gpuplan.catalog.errors import LimitError, UsageError
from gpuplan.launcher.lifecycle.engine import EngineError, EngineJob
from gpuplan.launcher.lifecycle.following import follow
from gpuplan.launcher.lifecycle.reconcile.reconcile import reconcile, take_down
from gpuplan.launcher.lifecycle.resume import down, reconcile_run, resume, show_log, stop
from gpuplan.launcher.lifecycle.transitions import LaunchContext, ask, attend, begin
from gpuplan.launcher.store.accounting import closing_line, spent_usd
from gpuplan.launcher.store.launch_record import LaunchRecord
from gpuplan.launcher.store.spending_limits import SpendingLimits


def no_wait(_seconds: float) -> None:
    """Let no time pass: the fake engine's calls do."""


def is_accounted(record: LaunchRecord, engine: FakeEngine) -> bool:
    """Return whether no dollar of the cloud's bill is missing from the account."""
    return spent_usd(record, now=engine.clock()) + Decimal("0.01") >= engine.billed_usd()


def cut_at(engine: FakeEngine, count: int) -> None:
    """Let the command die at the count-th moment that it talks to the engine."""
    left = [count]

    def cut(_call: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    engine.cut = cut


def moments(tmp_path: Path, managed: bool) -> int:
    """Return at how many moments a launch talks to the engine."""
    engine = FakeEngine(Clock())
    seen: list[str] = []
    engine.cut = seen.append
    context = make_context(tmp_path / "counted", engine)
    attend(context, launched(context, make_record(tmp_path, engine.clock, managed=managed)))
    return len(seen)


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("server_goes_on", [False, True])
def test_a_launch_that_is_killed_at_any_moment_is_picked_up(
    tmp_path: Path, managed: bool, server_goes_on: bool
) -> None:
    count = moments(tmp_path, managed)
    assert count >= 8
    for moment in range(count):
        engine = FakeEngine(Clock())
        context = make_context(tmp_path / f"{moment}", engine)
        cut_at(engine, moment)
        with pytest.raises(Killed):
            attend(context, launched(context, make_record(tmp_path, engine.clock, managed=managed)))
        engine.cut = lambda _call: None
        engine.clock.pass_s(120)
        if server_goes_on:
            engine.finish_requests()
        found = reconcile(context)
        assert not [one for one in found if one.is_orphan], f"orphan after moment {moment}"
        record = context.ledger.get(RUN)
        if record.is_open:
            record = follow(context, record, wait=engine.clock.pass_s)
        assert record.state == "ended"
        assert engine.live() == [], f"moment {moment} left machines"
        assert len(engine.books) <= 1, f"moment {moment} launched twice"
        assert is_accounted(record, engine), f"moment {moment} lost dollars"
        assert not reconcile(context)


@pytest.mark.parametrize("action", ["stop", "down", "reconcile_run"])
def test_an_end_that_is_killed_at_any_moment_is_picked_up(tmp_path: Path, action: str) -> None:
    for moment in range(40):
        engine = FakeEngine(Clock())
        context = make_context(tmp_path / f"{action}-{moment}", engine)
        record = launched(context, make_record(tmp_path, engine.clock))
        if action == "reconcile_run":
            engine.end_job(record.cluster)
        cut_at(engine, moment)
        try:
            if action == "stop":
                stop(context, record, wait=no_wait)
            elif action == "down":
                down(context, record)
            else:
                reconcile_run(context, record)
        except Killed:
            engine.cut = lambda _call: None
            reconcile(context)
            after = context.ledger.get(RUN)
            if after.is_open:
                after = down(context, after)
            assert after.state == "ended"
            assert engine.live() == []
            assert is_accounted(after, engine)
        else:
            assert moment > 2
            return
    raise AssertionError("the action never ended")


def test_a_launch_of_before_stores_had_an_id_is_labelled_when_it_is_launched_again(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.take_machines(record.cluster)
    make_record(tmp_path, engine.clock)  # Its task as an older version wrote it.
    resume(context, reconcile_run(context, record)[0], SpendingLimits())
    labels = [one["resources"]["labels"].get("gpuplan-store") for one in engine.tasks]
    assert labels == [context.ledger.store_id()] * 2


def test_two_commands_cannot_launch_one_run_twice(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    with pytest.raises(UsageError, match="still open"):
        context.ledger.begin_attempt(record.run, SpendingLimits(), spot=False)
    assert len(engine.books) == 1


def test_machines_that_no_launch_owns_are_found_and_go(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    launched(context, make_record(tmp_path, engine.clock))
    old = launched(context, make_record(tmp_path, engine.clock, run="old-20261101-100000-0000ff"))
    engine.take_machines(old.cluster)
    reconcile_run(context, old)
    engine.add_stray(old.cluster, old.run, store_id=context.ledger.store_id(), owner="ann")
    engine.add_stray("my-own-cluster", None)
    orphans = [one for one in reconcile(context, owner="ann") if one.is_orphan]
    assert [one.cluster for one in orphans] == [old.cluster]
    assert "$36.00 an hour" in orphans[0].text
    take_down(context, orphans[0], terminate=lambda _machines: None)
    assert sorted(engine.live()) == ["gp-net-a1b2c3", "my-own-cluster"]
    assert not [one for one in reconcile(context, owner="ann") if one.is_orphan]


def test_limits_count_what_is_open_at_its_worst(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    limits = SpendingLimits(project_usd=Decimal(100))
    launched(context, make_record(tmp_path, engine.clock))
    other = make_record(tmp_path, engine.clock, run="net-20261122-120000-b2b2b2")
    with pytest.raises(LimitError, match=r"has committed \$60\.00 of its \$100\.00"):
        begin(context, other, limits, spot=False)
    attend(context, context.ledger.get(RUN))
    assert begin(context, other, limits, spot=False).state == "intended"


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("way", ["reconcile_run", "down"])
def test_machines_that_came_and_went_while_nobody_looked_are_paid(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, way: str, remembered: bool
) -> None:
    record = ask(
        context, begin(context, make_record(tmp_path, engine.clock), SpendingLimits(), spot=False)
    )
    engine.finish_requests()
    engine.clock.pass_s(900)
    engine.take_machines(record.cluster)
    engine.clock.pass_s(90_000)
    if not remembered:
        engine.history.clear()
    ended = down(context, record) if way == "down" else reconcile_run(context, record)[0]
    assert (ended.state, ended.outcome) == ("ended", "lost")
    assert is_accounted(ended, engine)
    assert "at most" in closing_line(ended, now=engine.clock())
    if remembered:
        spent = spent_usd(ended, now=engine.clock())
        assert spent <= engine.billed_usd() + engine.usd_per_hour / 30


def test_a_log_that_breaks_off_is_followed_again(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.log_breaks = 3
    ended = follow(context, record, wait=engine.clock.pass_s)
    assert (ended.outcome, engine.live()) == ("succeeded", [])

    other = launched(context, make_record(tmp_path, engine.clock, run="net-20261122-120000-b2b2b2"))
    engine.log_breaks = 10_000
    before = engine.clock()
    with pytest.raises(EngineError, match="for a day; its job goes on"):
        follow(context, other, wait=engine.clock.pass_s)
    assert engine.clock() - before > timedelta(hours=24)
    assert context.ledger.get(other.run).state == "running"
    engine.take_machines(other.cluster)
    assert follow(context, context.ledger.get(other.run)).outcome == "lost"


def test_a_launch_that_is_being_started_can_be_followed(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = ask(
        context, begin(context, make_record(tmp_path, engine.clock), SpendingLimits(), spot=False)
    )
    with pytest.raises(UsageError, match="no job yet"):
        show_log(context, record, io.StringIO(), follow=False)
    out = io.StringIO()
    show_log(context, record, out, follow=True)
    assert out.getvalue() == "step 1\n"
    assert reconcile_run(context, context.ledger.get(RUN))[0].outcome == "succeeded"


def test_another_job_on_the_machines_is_not_the_launchs_own(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.add_job(record.cluster, EngineJob(job_id=2, status="succeeded", name="look-around"))
    after, finding = reconcile_run(context, record)
    assert (finding, after.is_open) == ("training", True)
    # Nor where the command that launched it died before it knew its own.
    unknown = context.ledger.update(RUN, lambda one: one.with_last(job_id=None), what="forgotten")
    after, _ = reconcile_run(context, unknown)
    assert after.last is not None
    assert (after.is_open, after.last.job_id) == (True, record.last.job_id if record.last else 0)


def test_stop_where_the_machines_are_gone_already(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.take_machines(record.cluster)
    assert stop(context, record, wait=no_wait).outcome == "lost"
    assert engine.commands == []
