"""The commands that find a launch again, on an engine in memory."""

import csv
import io
import json
import re
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import RUN, launched_with_orders, make_record

from gpuplan.cli.main import run
from gpuplan.launcher.lifecycle.engine import LostMachineError, LostTouchError
from gpuplan.launcher.lifecycle.transitions import LaunchContext, begin
from gpuplan.launcher.store.estimates import Store, StoreError
from gpuplan.launcher.store.launch_record import EngineAddress, LaunchRecord, PricedPlace
from gpuplan.launcher.store.spending_limits import SpendingLimits

GUARDED = (
    'gpuplan-guard: {"verdict": {"why": "projection", "text": "projected $90.00, above $45.00",'
    ' "exit_code": 4}, "spent_usd": 2.5}\n'
)


def test_status_says_what_is_open(record: LaunchRecord, capsys) -> None:
    assert run(["status"]) == 0
    (head, line) = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "is", "on", "for", "spent", "predicted"]
    assert re.fullmatch(
        RUN + r"  trains  aws/us-east-1/us-east-1a  0:\d\d h  \$\d\.\d\d  \$38\.00–45\.00", line
    )


def test_status_says_that_a_managed_job_waits_and_what_that_costs(
    tmp_path: Path, engine: FakeEngine, context: LaunchContext, capsys
) -> None:
    made = make_record(
        tmp_path, engine.clock, managed=True, controller_usd_per_hour=Decimal("0.20")
    )
    record = launched_with_orders(context, made, spot=True)
    engine.clock.pass_s(600)
    engine.preempt(record.cluster)
    assert run(["status"]) == 0
    _, line, waits = capsys.readouterr().out.splitlines()
    assert "  waits or sets up  " in line
    assert "it pays SkyPilot's controller alone, $0.20 an hour, and waits without end" in waits
    assert f"`gpuplan down {RUN}` ends it now" in waits


@pytest.mark.parametrize("command", ["down", "stop"])
def test_one_that_cannot_be_ended_keeps_no_other_up(
    record: LaunchRecord, engine: FakeEngine, capsys, command: str
) -> None:
    assert run([command, "nobody", RUN]) == 2
    assert engine.live() == []
    said = capsys.readouterr().err
    assert "No launch has a run id that begins with 'nobody'" in said
    assert f"{RUN} s" in said  # Stopped, or succeeded.


def test_status_ends_a_launch_whose_job_is_over(
    record: LaunchRecord, engine: FakeEngine, capsys
) -> None:
    engine.end_job(record.cluster)
    assert run(["status", RUN[:8], "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["launches"][0]["outcome"] == "succeeded"
    assert "saved at s3://results/team/" in captured.err
    assert engine.live() == []


def test_status_watches_until_nothing_is_open(
    record: LaunchRecord, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            engine.end_job(record.cluster)

    monkeypatch.setattr("gpuplan.cli.commands.status.time.sleep", sleep)
    assert run(["status", "--watch", "--every", "5s", "-q"]) == 0
    assert slept == [5.0, 5.0, 5.0]
    assert engine.live() == []


def test_status_watches_on_through_a_network_that_is_away(
    record: LaunchRecord, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    whole, slept = engine.requests, 0

    def lose(_cluster: str) -> None:
        raise LostTouchError("The connection was lost.")

    def sleep(_seconds: float) -> None:
        nonlocal slept
        slept += 1
        monkeypatch.setattr(engine, "requests", lose if slept < 3 else whole)
        if slept == 3:
            engine.end_job(record.cluster)

    monkeypatch.setattr("gpuplan.cli.commands.status.time.sleep", sleep)
    assert run(["status", "--watch"]) == 0
    assert "The connection was lost. It is asked again." in capsys.readouterr().err
    assert (slept, engine.live()) == (3, [])
    monkeypatch.setattr(engine, "requests", lose)
    assert run(["status", RUN, "--watch"]) == 2, "nobody has answered yet"


def test_status_watches_on_while_results_cannot_be_brought(
    record: LaunchRecord, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    tries = 0

    def look_at(_context: object, _runs: object) -> list[tuple[LaunchRecord, str]]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise (LostMachineError, LostTouchError)[tries - 1]("The connection timed out.")
        return []

    monkeypatch.setattr("gpuplan.api.launches.look_at", look_at)
    monkeypatch.setattr("gpuplan.cli.commands.status.time.sleep", lambda _seconds: None)
    assert run(["status", RUN, "--watch"]) == 0
    assert tries == 3
    said = capsys.readouterr().err
    assert "timed out. That is tried again." in said and "timed out. It is asked again." in said
    tries = 0
    assert run(["status", RUN]) == 1


def test_logs_before_and_after_the_end(record: LaunchRecord, engine: FakeEngine, capsys) -> None:
    assert run(["logs", RUN]) == 0
    assert capsys.readouterr().out == "step 1\n"
    assert run(["logs", "-f", RUN]) == 0
    assert "spent $" in capsys.readouterr().err
    assert engine.live() == []
    assert run(["logs", RUN]) == 0
    assert capsys.readouterr().out == "step 1\n"


def test_a_guarded_run_goes_on_with_other_orders(
    record: LaunchRecord, engine: FakeEngine, capsys
) -> None:
    engine.log += GUARDED
    assert run(["logs", "-f", RUN]) == 4
    assert "projected $90.00, above $45.00" in capsys.readouterr().err
    assert run(["resume", RUN]) == 2
    assert "ended by its guard" in capsys.readouterr().err
    engine.log = "step 2\n"
    assert run(["resume", RUN, "-y", "--on-projection", "continue", "--max-cost", "90"]) == 0
    orders = json.loads((Path(record.folder) / "job" / "guard.json").read_text())
    assert orders["projection"]["action"] == "continue"
    assert orders["max_cost_usd"] == 90
    assert orders["spent_before_usd"] > 1
    assert orders["hours_before"] > 0.03
    assert orders["requested_at_s"] > 1.7e9
    assert "2 x" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limit", "said", "way_on"),
    [
        ({"deadline_s": 3600.0}, "The deadline has passed", ["--deadline", "9h"]),
        ({"max_cost_usd": 41.0}, "leaves nothing to train with: $40.", ["--max-cost", "90"]),
        ({"max_hours": 1.15}, "leaves nothing to train in: 1.1", ["--max-hours", "9"]),
    ],
)
def test_a_run_whose_limits_are_used_up_rents_nothing(
    record: LaunchRecord,
    engine: FakeEngine,
    capsys,
    limit: dict[str, float],
    said: str,
    way_on: list[str],
) -> None:
    orders = Path(record.folder) / "job" / "guard.json"
    held = {**json.loads(orders.read_text()), **limit}
    if "deadline_s" in limit:
        held["deadline_s"] += engine.clock().timestamp()
    orders.write_text(json.dumps(held))
    engine.clock.pass_s(3900)
    engine.end_job(record.cluster, "failed")
    run(["status"])
    capsys.readouterr()
    assert run(["resume", RUN, "-y"]) == 4
    assert said in capsys.readouterr().err
    assert (engine.live(), len(engine.books)) == ([], 1)
    assert run(["resume", RUN, "-y", *way_on]) == 0
    assert len(engine.books) == 2


@pytest.mark.parametrize(
    ("options", "max_cost_usd"),
    [
        (["--month-limit", "100"], 60.0),  # As the limit counts it: at its worst case.
        (["--month-limit", "100", "--max-cost", "70"], 70.0),
        ([], None),
    ],
)
def test_a_run_that_goes_on_is_held_to_what_a_limit_counts_it_at(
    record: LaunchRecord, engine: FakeEngine, options: list[str], max_cost_usd: float | None
) -> None:
    engine.clock.pass_s(3900)
    engine.end_job(record.cluster, "failed")
    run(["status"])
    assert run(["resume", RUN, "-y", *options, "--detach"]) == 0
    orders = json.loads((Path(record.folder) / "job" / "guard.json").read_text())
    assert orders["spent_before_usd"] > 39
    assert orders.get("max_cost_usd") == max_cost_usd


def test_ctrl_c_while_following_leaves_the_run(
    record: LaunchRecord, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "tail", interrupted)
    assert run(["logs", "-f", RUN]) == 130
    assert f"gpuplan stop {RUN}" in capsys.readouterr().err
    assert len(engine.live()) == 1


def test_stop_and_down_say_what_was_spent(record: LaunchRecord, engine: FakeEngine, capsys) -> None:
    assert run(["stop", RUN]) == 0
    said = capsys.readouterr().err
    assert "told to stop" in said and re.search(r"spent \$\d\.\d\d, predicted", said)
    assert run(["down", RUN]) == 0
    assert run(["down", "nobody"]) == 2
    assert "No launch has a run id" in capsys.readouterr().err
    assert engine.live() == []


def test_all_jobs_are_told_to_stop_before_one_is_waited_for(
    record: LaunchRecord,
    engine: FakeEngine,
    context: LaunchContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    other = make_record(tmp_path, engine.clock, run="bert-20261122-130000-0d0d0d")
    launched_with_orders(context, other, spot=False)
    told: list[int] = []
    whole = engine.down

    def down(cluster: str) -> None:
        told.append(len(engine.commands))
        whole(cluster)

    monkeypatch.setattr(engine, "down", down)
    assert run(["stop", RUN, "nobody", other.run]) == 2
    assert told[0] >= 2
    assert engine.live() == []
    assert "No launch has a run id" in capsys.readouterr().err


def test_history_adds_up_and_filters(
    record: LaunchRecord, engine: FakeEngine, context: LaunchContext, tmp_path: Path, capsys
) -> None:
    other = make_record(
        tmp_path, engine.clock, run="bert-20261122-130000-0d0d0d", project="bert", owner="bob"
    )
    begin(context, other, SpendingLimits(), spot=False)
    assert run(["history"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[-1].startswith("2 launches, 2 still open: ")
    assert run(["history", "--project", "net", "--format", "csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["run"], row["attempts"], row["outcome"]) == (RUN, "1", "")
    assert run(["history", "--outcome", "failed"]) == 0
    assert "none is wanted" in capsys.readouterr().out
    assert run(["history", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    spent = sum(one["spent_usd"] for one in answer["launches"])
    assert answer["totals"]["spent_usd"] == pytest.approx(spent, abs=0.05)
    assert run(["history", RUN]) == 0
    told = capsys.readouterr().out
    assert "attempt 1: on-demand in aws/us-east-1/us-east-1a at $36.00 an hour" in told
    assert re.search(r"\d\d:\d\d  job 1 submitted", told)


def test_one_record_that_cannot_be_read_hides_no_other(
    record: LaunchRecord, engine: FakeEngine, capsys
) -> None:
    with closing(sqlite3.connect(Store().path)) as store:
        row = ("broken-1", "2026", "running", "gp-broken", "{broken")
        columns = "run, created_at, state, cluster, record"
        store.execute(f"insert into launches ({columns}) values (?, ?, ?, ?, ?)", row)
        store.commit()
    engine.add_stray("gp-broken", "broken-1", store_id=Store().id(), owner="ann")
    for words in (["status"], ["history"]):
        assert run(words) == 0
        captured = capsys.readouterr()
        assert RUN in captured.out
        assert "broken-1 is left out" in captured.err
    assert run(["reconcile", "-y", "--owner", "ann"]) == 1
    assert "broken-1  its record in the store cannot be read" in capsys.readouterr().out
    assert len(engine.live()) == 2, "its machines may train"
    assert run(["down", "broken-1"]) == 1
    assert "The record of broken-1 in the store cannot be read" in capsys.readouterr().err
    assert run(["down", RUN]) == 0


def test_limits_are_not_held_to_a_sum_that_nobody_knows(
    record: LaunchRecord, engine: FakeEngine, context: LaunchContext, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(Store().path)) as store:
        store.execute("update launches set record = '{'")
        store.commit()
    other = make_record(tmp_path, engine.clock, run="bert-20261122-130000-0d0d0d")
    with pytest.raises(StoreError, match="counts towards the limits"):
        begin(context, other, SpendingLimits(project_usd=Decimal(100)), spot=False)
    assert begin(context, other, SpendingLimits(), spot=False).state == "intended"


def test_with_nothing_open_skypilot_is_not_asked(capsys) -> None:
    assert run(["status"]) == 0
    assert "no launch costs money" in capsys.readouterr().out
    assert run(["history"]) == 0


def test_an_outcome_that_there_is_not_is_no_empty_list(capsys) -> None:
    assert run(["history", "--outcome", "suceeded"]) == 2
    said = capsys.readouterr().err
    assert "No launch ends with the outcome 'suceeded'. Did you mean succeeded?" in said
    assert run(["history", "--outcome", "open", "--outcome", "no-capacity"]) == 0


def test_a_launch_that_only_a_command_here_ends_is_not_left_alone(
    tmp_path: Path,
    engine: FakeEngine,
    context: LaunchContext,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = (PricedPlace(infra="verda/FIN-01", usd_per_hour=Decimal("19.2")),)
    launched_with_orders(context, make_record(tmp_path, engine.clock, places=places), spot=False)
    assert run(["status"]) == 0
    said = "SkyPilot ends no machines on verda by itself"
    assert f"{said}: those of {RUN} cost $19.20 an hour" in capsys.readouterr().out
    assert run(["resume", RUN, "--detach"]) == 2
    assert f"{said}, so with --detach they would cost $19.20" in capsys.readouterr().err


def test_down_closes_a_launch_whose_skypilot_is_gone(
    record: LaunchRecord, engine: FakeEngine, context: LaunchContext, capsys
) -> None:
    gone = EngineAddress(server="https://sky.example.com")
    context.ledger.update(RUN, lambda one: one.with_last(engine=gone), what="asked")
    elsewhere = FakeEngine(engine.clock, at=EngineAddress(server="https://other.example.com"))
    for name in ("requests", "cluster", "past", "address"):
        setattr(engine, name, getattr(elsewhere, name))
    assert run(["down", RUN]) == 2
    assert f"`gpuplan down {RUN} --skypilot-is-gone`" in capsys.readouterr().err
    assert run(["down", RUN, "--skypilot-is-gone"]) == 0
    said = capsys.readouterr().err
    assert "aws ec2 terminate-instances --region us-east-1" in said
    assert "Nothing was ended." in said and "spent at least $" in said
    assert run(["history"]) == 0
    told = capsys.readouterr().out
    assert len(re.findall(r"≥ \$\d", told)) == 2, told
    assert run(["history", "--by", "owner"]) == 0
    assert len(re.findall(r"≥ \$\d", capsys.readouterr().out)) == 2
    assert run(["history", "--format", "csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["is_bound"], row["is_unknown"]) == ("False", "True")
