"""Commands that are killed or interrupted: nothing is orphaned, nothing is launched twice.

`make test-cloud` runs this; `make test` does not collect it.
"""

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.person import Person, until

LAUNCH = ("launch", "--provider", "aws", "--shared", "/shared", "--synthetic", "-y")
INTERRUPTED = 130


@pytest.fixture
def person(cloud: Cloud, tmp_path: Path, gpuplan_home: Path) -> Person:
    return Person(cloud, tmp_path / "project", gpuplan_home)


def states(home: Path) -> list[str]:
    """Return the state of every launch of a store, without starting gpuplan."""
    found = list(home.rglob("gpuplan.sqlite3"))
    if not found:
        return []
    with closing(sqlite3.connect(f"file:{found[0]}?mode=ro", uri=True, timeout=5)) as store:
        return [row[0] for row in store.execute("select state from launches")]


@pytest.mark.parametrize("way", ["kill", "interrupt"])
def test_ended_before_anything_was_asked_for(person: Person, tmp_path: Path, way: str) -> None:
    person.estimate()
    before = len(person.cloud.instances())
    begun = person.begin(*LAUNCH, "--steps", "5", log=tmp_path / "log")
    until(lambda: states(person.home) == ["intended"], timeout_s=60, every_s=0.01)
    if way == "kill":
        begun.kill()
        assert begun.wait(10) == -signal.SIGKILL
    else:
        begun.interrupt()
        assert begun.wait(30) == INTERRUPTED, begun.said
        assert "is not open" in begun.said or "costs money until it ends" in begun.said
    person("reconcile")
    assert person.settled("cancelled")["spent_usd"] == 0
    assert len(person.cloud.instances()) == before
    assert "Nothing is open" in person("status")
    assert "Nothing is open" in person("reconcile")


def test_killed_while_machines_start_interrupted_then_projected_with_nobody_there(
    person: Person, tmp_path: Path
) -> None:
    person.estimate()
    many = ("--steps", "1000000", "--on-projection", "stop", "--autodown", "0")
    begun = person.begin(*LAUNCH, *many, log=tmp_path / "launch")
    until(lambda: states(person.home) == ["requested"], timeout_s=60, every_s=0.1)
    record = person.record()
    until(lambda: bool(person.machines(record)), timeout_s=90, what="a machine")
    begun.kill()
    said = person("reconcile")
    assert "is being started" in said or " runs" in said, said
    follow = person.begin("logs", "-f", record["run"], log=tmp_path / "follow")
    until(lambda: bool(person.steps(record)), timeout_s=120, what="a step")
    follow.interrupt()
    assert follow.wait(30) == INTERRUPTED, follow.said
    assert len(person.machines(record)) == 1, "it was launched once"

    # Nobody looks until its guard has ended it and its machines have gone by themselves.
    until(
        lambda: all(not one.runs for one in person.machines(record)), timeout_s=300, what="the end"
    )
    state = json.loads((person.results(record) / "guard-state.json").read_text())
    assert state["verdict"]["why"] == "projection"
    assert "above the $" in state["verdict"]["text"]
    last = person.steps(record)[-1]
    assert 33 <= last < 3000
    assert list((person.results(record) / "checkpoints").glob(f"*{last}*")), "no checkpoint"
    assert record["run"] in person("reconcile")
    record = person.settled("lost", late_s=90)
    assert "Nothing is open" in person("reconcile")
