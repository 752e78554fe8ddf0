"""From the intent to the closed account, on an engine in memory: cut off anywhere, and gone on."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from fake_engine import FakeEngine
from launch_records import RUN, launched, make_context, make_record

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.lifecycle.engine import EngineError, NoCapacityError
from gpuplan.launcher.lifecycle.job.guard_report import MANAGED_DOWN_S
from gpuplan.launcher.lifecycle.resume import down, reconcile_run, resume, stop
from gpuplan.launcher.lifecycle.transitions import LaunchContext, ask, attend, begin
from gpuplan.launcher.store.accounting import closing_line, spent_usd
from gpuplan.launcher.store.launch_record import LaunchRecord
from gpuplan.launcher.store.spending_limits import SpendingLimits
from gpuplan.launcher.task_file import UPLOAD_MARK

GUARDED = (
    'gpuplan-guard: {"verdict": {"why": "max-cost", "text": "reached --max-cost $50.00",'
    ' "exit_code": 4}, "spent_usd": 49.5, "step": 812, "projection": null}\n'
)
GUARDED_LESS = GUARDED.replace("49.5", "21.25")


def no_wait(_seconds: float) -> None:
    """Let no time pass: the fake engine's calls do."""


def is_accounted(record: LaunchRecord, engine: FakeEngine) -> bool:
    """Return whether no dollar of the cloud's bill is missing from the account."""
    return spent_usd(record, now=engine.clock()) + Decimal("0.01") >= engine.billed_usd()


@pytest.mark.parametrize(
    ("log", "workload", "guard_why", "trained"),
    [
        (GUARDED, "w", "max-cost", True),
        (GUARDED.replace("812", "null"), "w", "max-cost", False),
        ("pip: no such package\n", "w", None, False),
        (GUARDED, None, "max-cost", None),
    ],
)
def test_an_attempt_keeps_whether_it_came_to_train(
    tmp_path: Path,
    context: LaunchContext,
    engine: FakeEngine,
    log: str,
    workload: str | None,
    guard_why: str | None,
    trained: bool | None,
) -> None:
    engine.log = log
    record = launched(context, make_record(tmp_path, engine.clock, workload=workload))
    ended = attend(context, record)
    assert ended.last is not None
    assert (ended.last.guard_why, ended.last.trained) == (guard_why, trained)


def test_a_launch_from_intent_to_account(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    assert record.state == "running"
    assert record.last is not None
    assert record.last.usd_per_hour == Decimal(36)
    assert record.last.infra == "aws/us-east-1/us-east-1a"
    ended = attend(context, record)
    assert (ended.state, ended.outcome) == ("ended", "succeeded")
    assert engine.live() == []
    spent = spent_usd(ended, now=engine.clock())
    # Counted from when they were asked for: two minutes at most before they boot.
    assert engine.billed_usd() <= spent <= engine.billed_usd() + engine.usd_per_hour / 30
    line = closing_line(ended, now=engine.clock())
    assert line == f"spent ${spent:,.2f}, predicted $38.00–45.00, saved at s3://results/team/{RUN}"
    assert [what.split(" ")[0] for _, what in context.ledger.events(RUN)] == [
        "intended",
        "requested",
        "machines",
        "job",  # submitted
        "job",  # succeeded
        "ended:",
    ]
    assert (Path(ended.folder) / "job-1.log").read_text() == "step 1\n"


def test_the_guards_word_is_the_outcome(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    engine.log += GUARDED
    ended = attend(context, launched(context, make_record(tmp_path, engine.clock)))
    assert (ended.outcome, ended.why) == ("guarded", "reached --max-cost $50.00")


def test_results_that_never_arrived_are_no_success(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    engine.log += GUARDED.replace("max-cost", "done") + f"{UPLOAD_MARK} 60 minutes\n"
    ended = attend(context, launched(context, make_record(tmp_path, engine.clock)))
    assert ended.outcome == "failed"
    assert f"gpuplan resume {RUN}" in (ended.why or "")


def test_the_run_record_in_the_log_is_kept(tmp_path: Path, engine: FakeEngine) -> None:
    kept: list[tuple[str, object]] = []
    context = make_context(
        tmp_path, engine, keep_run=lambda record, run: kept.append((record.run, run["steps"]))
    )
    engine.log += '(head, rank=0) gpuplan-record: {"id": "net", "steps": 300}\n'
    attend(context, launched(context, make_record(tmp_path, engine.clock)))
    assert kept == [(RUN, 300)]


def test_a_job_that_fails(tmp_path: Path, context: LaunchContext, engine: FakeEngine) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.end_job(record.cluster, "failed")
    ended, _ = reconcile_run(context, record)
    assert (ended.state, ended.outcome) == ("ended", "failed")
    assert engine.live() == []


def test_no_capacity_costs_nothing(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    engine.no_capacity = True
    with pytest.raises(NoCapacityError):
        launched(context, make_record(tmp_path, engine.clock))
    record = context.ledger.get(RUN)
    assert (record.state, record.outcome) == ("ended", "no-capacity")
    assert spent_usd(record, now=engine.clock()) == 0
    assert "nothing was rented" in closing_line(record, now=engine.clock())


def test_machines_that_break_while_they_start_go_and_are_paid(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    engine.breaks_while_starting = True
    with pytest.raises(EngineError, match="setup of a machine"):
        launched(context, make_record(tmp_path, engine.clock))
    record = context.ledger.get(RUN)
    assert (record.outcome, engine.live()) == ("failed", [])
    assert spent_usd(record, now=engine.clock()) > 0
    assert is_accounted(record, engine)


def test_results_are_brought_before_the_machines_go(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, fetch=str(tmp_path / "results")))
    attend(context, record)
    assert engine.copied == [tmp_path / "results"]
    assert engine.live() == []


def test_machines_stay_while_results_cannot_be_brought(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, fetch=str(tmp_path / "results")))

    def refuse(*_: object) -> None:
        raise EngineError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "copy_back", refuse)
        with pytest.raises(EngineError, match="disk is full"):
            attend(context, record)
    assert engine.live() == [record.cluster]
    assert context.ledger.get(RUN).is_open
    ended, _ = reconcile_run(context, context.ledger.get(RUN))
    assert (ended.outcome, engine.live()) == ("succeeded", [])


def test_stop_lets_the_job_write_its_checkpoint(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    engine.log += (
        'gpuplan-guard: {"verdict": {"why": "stop", "text": "you asked for it", "exit_code": 0}}\n'
    )
    ended = stop(context, record, wait=no_wait)
    assert engine.commands == ["touch ~/gpuplan-stop"]
    assert (ended.outcome, engine.live()) == ("stopped", [])
    with pytest.raises(UsageError, match="has ended already"):
        stop(context, ended, wait=no_wait)


def test_a_run_that_was_stopped_can_be_resumed_where_its_log_could_not_be_read(
    tmp_path: Path,
    context: LaunchContext,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))

    def refuse(*_: object, **__: object) -> None:
        raise EngineError("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "tail", refuse)
        ended = stop(context, record, wait=no_wait)
    assert (ended.outcome, engine.live()) == ("stopped", [])
    assert "told to stop" in (ended.why or "")
    assert resume(context, ended, SpendingLimits()).is_open


@pytest.mark.parametrize("is_resumed", [False, True])
def test_stop_does_not_pay_for_a_set_up_that_nothing_follows(
    tmp_path: Path,
    context: LaunchContext,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    is_resumed: bool,
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    if is_resumed:
        engine.end_job(record.cluster, "failed")
        record = resume(context, reconcile_run(context, record)[0], SpendingLimits())
    monkeypatch.setattr(engine, "execute", lambda *_: None)
    engine.set_job_status(record.cluster, "waiting")
    waited: list[float] = []
    ended = stop(context, record, wait=waited.append)
    assert (ended.outcome, engine.live(), waited) == ("stopped", [], [])
    assert "had not begun to train" in (ended.why or "")
    assert is_accounted(ended, engine)


def test_down_twice_does_nothing_the_second_time(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    first = down(context, record)
    second = down(context, context.ledger.get(RUN))
    assert first == second
    assert (first.outcome, engine.live()) == ("stopped", [])
    assert is_accounted(first, engine)


def test_down_while_machines_are_being_started(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = ask(
        context, begin(context, make_record(tmp_path, engine.clock), SpendingLimits(), spot=False)
    )
    ended = down(context, record)
    assert (ended.outcome, ended.state) == ("cancelled", "ended")
    engine.finish_requests()
    assert engine.live() == []


@pytest.mark.parametrize("spot", [False, True])
def test_machines_that_are_taken_away_and_resumed(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, spot: bool
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    if spot:
        record = context.ledger.update(RUN, lambda one: one.with_last(spot=True), what="spot")
    engine.clock.pass_s(1200)
    engine.take_machines(record.cluster)
    engine.clock.pass_s(300)
    ended, finding = reconcile_run(context, record)
    assert (finding, ended.outcome) == ("gone", "preempted" if spot else "lost")
    assert is_accounted(ended, engine)
    assert "at most" in closing_line(ended, now=engine.clock())
    again = resume(context, ended, SpendingLimits(), spot=False)
    done = attend(context, again)
    assert (done.outcome, len(done.attempts)) == ("succeeded", 2)
    assert done.attempts[0].outcome == ("preempted" if spot else "lost")
    assert is_accounted(done, engine)


def test_what_may_be_resumed(tmp_path: Path, context: LaunchContext, engine: FakeEngine) -> None:
    record = launched(context, make_record(tmp_path, engine.clock))
    with pytest.raises(UsageError, match="still runs"):
        resume(context, record, SpendingLimits())
    done = attend(context, record)
    with pytest.raises(UsageError, match="all its steps"):
        resume(context, done, SpendingLimits())
    assert len(engine.books) == 1


def test_a_guarded_run_goes_on_only_with_other_orders(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    engine.log += GUARDED
    ended = attend(context, launched(context, make_record(tmp_path, engine.clock)))
    with pytest.raises(UsageError, match="ended by its guard"):
        resume(context, ended, SpendingLimits())
    assert resume(context, ended, SpendingLimits(), change_orders=True).state == "running"


def test_what_was_fetched_is_sent_back_when_a_run_is_resumed(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    record = launched(context, make_record(tmp_path, engine.clock, fetch=str(results)))
    engine.end_job(record.cluster, "failed")
    ended, _ = reconcile_run(context, record)
    resume(context, ended, SpendingLimits())
    assert engine.tasks[-1]["file_mounts"] == {"~/gpuplan-out": str(results)}


def test_a_managed_spot_job(tmp_path: Path, context: LaunchContext, engine: FakeEngine) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, managed=True))
    assert record.state == "running"
    engine.log += GUARDED.replace("max-cost", "done").replace("49.5", "21.25")
    ended = attend(context, record)
    assert (ended.outcome, engine.live()) == ("succeeded", [])
    (one,) = ended.attempts
    assert one.usd_per_hour is not None and not one.is_bound
    down_usd = one.usd_per_hour * MANAGED_DOWN_S / 3600
    assert spent_usd(ended, now=engine.clock()) == Decimal("21.25") + down_usd


def test_a_managed_job_is_counted_with_its_controller_while_it_runs(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    controller = Decimal("0.20")
    record = make_record(tmp_path, engine.clock, managed=True, controller_usd_per_hour=controller)
    record, _ = reconcile_run(context, launched(context, record))
    assert record.last is not None
    assert record.last.usd_per_hour == Decimal(36) + controller


@pytest.mark.parametrize("log", ["the log is gone\n", GUARDED_LESS])
@pytest.mark.parametrize("is_seen_before", [True, False])
def test_the_set_up_of_a_managed_job_is_paid(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, log: str, is_seen_before: bool
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, managed=True))
    engine.set_up(record.cluster, 1800)
    if is_seen_before:
        reconcile_run(context, record)
        open_usd = spent_usd(context.ledger.get(RUN), now=engine.clock())
        assert open_usd >= engine.billed_usd() > 18
    engine.clock.pass_s(240)
    engine.log = log
    engine.end_job(record.cluster, "failed")
    ended, _ = reconcile_run(context, context.ledger.get(RUN))
    assert is_accounted(ended, engine)
    assert ended.last is not None and ended.last.is_bound == (log != GUARDED_LESS)


def test_a_managed_job_whose_end_has_no_time_costs_no_more_once_it_is_closed(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = launched(context, make_record(tmp_path, engine.clock, managed=True))
    engine.end_job(record.cluster, "failed")
    engine._managed = [replace(one, ended_at=None) for one in engine._managed]
    ended, _ = reconcile_run(context, record)
    spent = spent_usd(ended, now=engine.clock())
    engine.clock.pass_s(86_400)
    assert spent_usd(ended, now=engine.clock()) == spent > 0


def test_of_two_tasks_the_second_is_resumed_on_demand(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine
) -> None:
    record = make_record(tmp_path, engine.clock, managed=True)
    path = Path(record.folder) / "task.yaml"
    task = yaml.safe_load(path.read_text())
    tasks = [{**task, "envs": {"GPUPLAN_STAGE": stage}} for stage in ("spot", "on-demand")]
    path.write_text(yaml.safe_dump_all(tasks))
    record = launched(context, record)
    engine.end_job(record.cluster, "failed")
    ended, _ = reconcile_run(context, record)
    resume(context, ended, SpendingLimits())
    assert [one["envs"]["GPUPLAN_STAGE"] for one in engine.tasks[-2:]] == ["spot", "on-demand"]
    engine.end_job(record.cluster, "failed")
    ended, _ = reconcile_run(context, context.ledger.get(RUN))
    resume(context, ended, SpendingLimits(), spot=False)
    assert engine.tasks[-1]["envs"]["GPUPLAN_STAGE"] == "on-demand"
    assert "use_spot" not in engine.tasks[-1]["resources"]
    assert len(list(yaml.safe_load_all(path.read_text()))) == 1


def test_a_secret_that_is_not_set_asks_for_nothing(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    record = make_record(tmp_path, engine.clock, secrets=("HF_TOKEN",))
    begun = begin(context, record, SpendingLimits(), spot=False)
    with pytest.raises(UsageError, match="HF_TOKEN is not set"):
        ask(context, begun)
    assert context.ledger.get(RUN).outcome == "cancelled"
    assert engine.tasks == []


def test_the_value_of_a_secret_is_kept_nowhere(
    tmp_path: Path, context: LaunchContext, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "canary-4711")
    attend(context, launched(context, make_record(tmp_path, engine.clock, secrets=("HF_TOKEN",))))
    assert engine.secrets == {"HF_TOKEN": "canary-4711"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"canary-4711" in path.read_bytes()]
