"""A shell that reaches another SkyPilot, or one that has lost its state, ends nothing."""

import io
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import RUN, launched, make_context, make_record

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.labels import slug
from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.engine import EngineError
from gpuplan.launcher.lifecycle.observing.elsewhere import ElsewhereError
from gpuplan.launcher.lifecycle.reconcile.reconcile import (
    LabelledMachine,
    Listing,
    reconcile,
    take_down,
)
from gpuplan.launcher.lifecycle.resume import (
    down,
    look_at_open,
    reconcile_run,
    resume,
    show_log,
    stop,
)
from gpuplan.launcher.lifecycle.transitions import end
from gpuplan.launcher.store.launch_record import EngineAddress, LaunchRecord
from gpuplan.launcher.store.spending_limits import SpendingLimits

THERE = EngineAddress(server="http://127.0.0.1:46912", home="/home/ann/.gpuplan-sky", user="5a5a")
HERE = EngineAddress(server="http://127.0.0.1:46580", home="/home/ann", user="5a5a")


@pytest.fixture
def engine(engine: FakeEngine) -> FakeEngine:
    engine.at = THERE
    return engine


@pytest.fixture
def cron(tmp_path: Path, engine: FakeEngine) -> LaunchContext:
    """Return the same store in a shell without GPUPLAN_SKY_HOME."""
    said: list[str] = []
    return make_context(tmp_path, FakeEngine(engine.clock, at=HERE), tell=said.append)


def machine(context: LaunchContext, record: LaunchRecord) -> LabelledMachine:
    return LabelledMachine(
        cloud="aws",
        region="us-east-1",
        instance_id="i-0abc",
        instance_type="p4d.24xlarge",
        run=slug(record.run),
        launched_at=None if record.last is None else record.last.began_at,
        store_id=context.ledger.store_id(),
        owner="ann",
    )


@pytest.mark.parametrize("managed", [False, True])
def test_what_another_skypilot_does_not_know_is_not_gone(
    tmp_path: Path, context: LaunchContext, cron: LaunchContext, engine: FakeEngine, managed: bool
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, managed=managed))
    assert record.last is not None and record.last.engine == THERE
    said: list[str] = []
    cron = make_context(tmp_path, cron.engine, tell=said.append)  # type: ignore[arg-type]
    ((seen, finding),) = look_at_open(cron)
    assert (seen.state, finding) == ("running", "unreachable")
    assert f"`GPUPLAN_SKY_HOME=/home/ann/.gpuplan-sky gpuplan status {RUN}`" in said[0]
    (line,) = [one for one in reconcile(cron) if one.run == RUN]
    assert line.kind == "unknown"
    assert "with its state in /home/ann/.sky as its user 5a5a is reached from here" in line.text
    for act in (
        lambda: reconcile_run(cron, record),
        lambda: down(cron, record),
        lambda: stop(cron, record, wait=lambda _s: None),
        lambda: resume(cron, record, SpendingLimits()),
    ):
        with pytest.raises(ElsewhereError, match="Ask that SkyPilot"):
            act()
    assert (context.ledger.get(RUN).state, engine.live()) == ("running", [record.cluster])
    assert look_at_open(context)[0][1] == "training"


@pytest.mark.parametrize(
    ("asked", "how"),
    [
        (
            EngineAddress(server="https://sky.example.com"),
            "`env -u GPUPLAN_SKY_HOME SKYPILOT_API_SERVER_ENDPOINT=https://sky.example.com gpuplan",
        ),
        (
            EngineAddress(server="http://127.0.0.1:46580", home=str(Path.home())),
            "`env -u GPUPLAN_SKY_HOME -u SKYPILOT_API_SERVER_ENDPOINT gpuplan",
        ),
        (EngineAddress(user="7b7b"), f"`gpuplan status {RUN}`, where SkyPilot's user is 7b7b"),
    ],
)
def test_the_message_says_how_to_reach_the_skypilot_that_was_asked(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, asked: EngineAddress, how: str
) -> None:
    engine.at = asked
    record = launched(context, make_record(tmp_path, engine.clock))
    other = EngineAddress(server="http://127.0.0.1:46999", home="/elsewhere", user="5a5a")
    with pytest.raises(ElsewhereError) as refused:
        reconcile_run(make_context(tmp_path, FakeEngine(engine.clock, at=other)), record)
    assert how in refused.value.message


def test_a_job_of_that_number_is_somebody_elses_in_another_skypilot(
    tmp_path: Path, context: LaunchContext, cron: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, managed=True))
    with pytest.raises(ElsewhereError):
        show_log(cron, record, io.StringIO(), follow=True)


def test_a_skypilot_whose_address_changed_still_knows_its_machines(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.at = EngineAddress(server="https://sky.example.com", user="5a5a")
    assert reconcile_run(context, record)[1] == "training"
    engine.take_machines(record.cluster)
    assert reconcile_run(context, record)[0].outcome == "lost"


def test_a_launch_that_ended_is_resumed_by_the_skypilot_that_was_asked(
    tmp_path: Path, context: LaunchContext, cron: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    end(context, record, "lost", "closed by an earlier version, though it trains")
    with pytest.raises(ElsewhereError):
        resume(cron, context.ledger.get(RUN), SpendingLimits())
    with pytest.raises(ElsewhereError):
        down(cron, context.ledger.get(RUN))
    listing = Listing(instances=(machine(context, record),), clouds=("aws",))
    found = reconcile(cron, instances=lambda: listing, owner="ann")
    assert [one.kind for one in found if one.run is not None] == ["unknown"]
    assert engine.live() == [record.cluster]


def test_looking_at_a_closed_launch_does_not_end_its_job(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, fetch=str(tmp_path / "results")))
    ended = end(context, record, "lost", "closed by mistake")
    for status in ("up", "starting"):
        engine.set_status(record.cluster, status)
        assert reconcile_run(context, ended) == (ended, "unreachable")
    engine.set_status(record.cluster, "up")
    engine.silent = True
    assert reconcile_run(context, ended) == (ended, "unreachable")
    engine.silent = False
    with pytest.raises(UsageError, match="its job may still run"):
        resume(context, ended, SpendingLimits())
    assert engine.live() == [record.cluster]
    down(context, ended)
    assert engine.live() == []


@pytest.mark.parametrize("kept", [THERE, None])
def test_machines_that_aws_lists_are_not_gone(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, kept: EngineAddress | None
) -> None:
    """SkyPilot's state was lost: its address is the same, and it has never heard of them."""
    engine.at = kept
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.clock.pass_s(7 * 24 * 3600)
    emptied = make_context(tmp_path, FakeEngine(engine.clock, at=kept))
    listing = Listing(instances=(machine(context, record),), clouds=("aws",))
    found = reconcile(emptied, instances=lambda: listing, owner="ann")
    assert [one.kind for one in found] == ["unknown"]
    assert context.ledger.get(RUN).is_open
    emptied = make_context(
        tmp_path, FakeEngine(engine.clock, at=kept), listed=lambda _record: ("i-0abc in us-east-1",)
    )
    with pytest.raises(EngineError, match="AWS lists: i-0abc in us-east-1"):
        down(emptied, record)
    emptied = make_context(tmp_path, FakeEngine(engine.clock, at=kept), listed=lambda _record: ())
    assert down(emptied, record).outcome == "lost"


def test_machines_that_skypilot_forgot_are_closed_by_hand_alone(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    said: list[str] = []
    emptied = make_context(tmp_path, FakeEngine(engine.clock, at=THERE), tell=said.append)
    assert reconcile_run(emptied, record)[1] == "unreachable"
    assert "SkyPilot has forgotten them" in said[0]
    assert down(emptied, record).outcome == "lost"


def test_forgotten_machines_of_long_ago_are_gone(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.clock.pass_s(31 * 24 * 3600)
    emptied = make_context(tmp_path, FakeEngine(engine.clock, at=THERE))
    assert reconcile_run(emptied, record)[0].outcome == "lost"


def test_what_is_closed_in_one_look_is_ended_in_the_next(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    """SkyPilot itself saw the cluster go, and a machine of it is left in the cloud."""
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.take_machines(record.cluster)
    listing = Listing(instances=(machine(context, record),), clouds=("aws",))
    found = reconcile(context, instances=lambda: listing, owner="ann")
    assert [one.kind for one in found] == ["settled", "unknown"]
    assert "closed just now" in found[1].text
    (orphan,) = reconcile(context, instances=lambda: listing, owner="ann")
    assert orphan.kind == "orphan-instance"
    ended: list[str] = []
    take_down(context, orphan, terminate=lambda all_: ended.extend(one.instance_id for one in all_))
    assert ended == ["i-0abc"]


def test_a_managed_job_whose_controller_is_unknown_is_closed_by_hand_alone(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, managed=True))
    emptied = make_context(tmp_path, FakeEngine(engine.clock, at=THERE))
    assert reconcile_run(emptied, record)[1] == "unreachable"
    assert down(emptied, record).outcome == "preempted"
