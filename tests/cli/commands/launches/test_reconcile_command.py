"""`gpuplan reconcile`, on an engine in memory."""

import json
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from launch_records import RUN, make_record

from gpuplan.cli.main import run
from gpuplan.launcher.lifecycle.reconcile.reconcile import Listing, Skipped
from gpuplan.launcher.lifecycle.transitions import LaunchContext
from gpuplan.launcher.store.launch_record import LaunchRecord
from gpuplan.launcher.store.spending_limits import SpendingLimits


def leave_machines(context: LaunchContext, engine: FakeEngine, folder: Path) -> LaunchRecord:
    """Return a launch that has ended, and whose machines SkyPilot still has."""
    ended = {"state": "ended", "outcome": "lost", "why": "its machines went"}
    record = make_record(folder, engine.clock, run="old-20261101-100000-0000ff", **ended)
    context.ledger.reserve(record, SpendingLimits())
    store_id = context.ledger.store_id()
    engine.add_stray(record.cluster, record.run, store_id=store_id, owner="ann")
    return record


def answers(monkeypatch: pytest.MonkeyPatch, wanted: bool) -> list[str]:
    """Let a user at a terminal answer every question so; return what is asked."""
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return wanted

    monkeypatch.setattr("gpuplan.cli.commands.reconcile.is_terminal", lambda _stream: True)
    monkeypatch.setattr("gpuplan.cli.commands.reconcile.click.confirm", confirm)
    return asked


def test_reconcile_gives_back_what_no_launch_owns_only_if_it_is_wanted(
    record: LaunchRecord,
    engine: FakeEngine,
    context: LaunchContext,
    tmp_path: Path,
    monkeypatch,
    capsys,
) -> None:
    monkeypatch.setenv("GPUPLAN_OWNER", "ann")
    old = leave_machines(context, engine, tmp_path)
    assert run(["reconcile"]) == 1
    captured = capsys.readouterr()
    assert f"{RUN}  runs" in captured.out
    assert f"owned by {old.run}, which has ended" in captured.out
    assert "-y tears it down" in captured.err
    assert len(engine.live()) == 2
    assert run(["reconcile", "-y"]) == 0
    assert engine.live() == [record.cluster]
    capsys.readouterr()
    assert run(["reconcile", "--format", "json", "-q"]) == 0
    # AWS is not asked here, which the second line says.
    kinds = [one["kind"] for one in json.loads(capsys.readouterr().out)["found"]]
    assert kinds == ["running", "skipped"]


def test_reconcile_never_ends_what_is_not_this_stores_for_sure(
    record: LaunchRecord, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    engine.add_stray("gp-bert-0d0d0d", "bert-1", store_id="7b", owner="bob")
    engine.add_stray("gp-old-0000ff", "old-1")
    assert run(["reconcile", "-y"]) == 1
    captured = capsys.readouterr()
    assert "launched by bob from another store (7b)" in captured.out
    assert captured.err == (
        "gp-old-0000ff may belong to somebody else, so it is left alone; if it is yours:"
        " sky down gp-old-0000ff\n"
    )
    assert len(engine.live()) == 3

    asked = answers(monkeypatch, False)
    assert run(["reconcile"]) == 1
    assert [text.partition(":")[0] for text in asked] == ["gp-old-0000ff"]
    assert "They may belong to somebody else" in asked[0]
    assert len(engine.live()) == 3
    answers(monkeypatch, True)
    assert run(["reconcile"]) == 0
    assert sorted(engine.live()) == ["gp-bert-0d0d0d", record.cluster]


def test_reconcile_says_whose_machines_are_and_where_it_did_not_look(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    skipped = Skipped(cloud="aws", regions=("af-south-1",), why="not enabled for this account")
    listing = Listing(skipped=(skipped,))
    monkeypatch.setattr(
        "gpuplan.launcher.lifecycle.reconcile.cloud_instances.labelled_instances",
        lambda _regions: listing,
    )
    line = "not looked at: aws/af-south-1: not enabled for this account"
    assert run(["reconcile", "-y"]) == 0
    nothing = "Nothing is open, and nothing is rented"
    assert capsys.readouterr().out == f"{nothing}.\n{line}\n"
    engine.add_stray("gp-bert-0d0d0d", "bert-1", store_id="7b", owner="bob")
    assert run(["reconcile", "-y"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("bert-1  1 x p4d.24xlarge in aws/us-east-1")
    assert said[1:] == [f"{nothing} by this store.", line]
    assert run(["reconcile", "--format", "json"]) == 0
    theirs, passed_over = json.loads(capsys.readouterr().out)["found"]
    assert (theirs["kind"], theirs["store"], theirs["owner"]) == ("others", "7b", "bob")
    assert (passed_over["kind"], passed_over["text"]) == ("skipped", line)
