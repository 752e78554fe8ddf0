"""Commands that are killed and machines that are taken away: nothing is lost, nothing is doubled.

`make test-cloud` runs this; `make test` does not collect it.
"""

import signal
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.person import Person, until

LAUNCH = ("launch", "--provider", "aws", "--shared", "/shared", "-y")
INTERRUPTED = 130
STEPS = 500


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


def test_killed_while_machines_start_interrupted_while_it_trains_robbed_and_resumed(
    person: Person, tmp_path: Path
) -> None:
    person.estimate()
    some = ("--steps", str(STEPS), "--checkpoint-every", "20", "--on-projection", "continue")
    begun = person.begin(*LAUNCH, *some, log=tmp_path / "launch")
    until(lambda: states(person.home) == ["requested"], timeout_s=60, every_s=0.1)
    record = person.record()
    until(lambda: bool(person.machines(record)), timeout_s=90, what="a machine")
    begun.kill()
    said = person("reconcile")
    assert "is being started" in said or " runs" in said, said

    follow = person.begin("logs", "-f", record["run"], log=tmp_path / "follow")
    until(lambda: len(person.steps(record)) > 5, timeout_s=120, what="a step")
    follow.interrupt()
    assert follow.wait(30) == INTERRUPTED, follow.said
    assert len(person.machines(record)) == 1, "it was launched once"
    until(lambda: bool(whole(person, record)), timeout_s=60, what="a checkpoint")
    assert [one.state for one in person.cloud.terminate(record["cluster"])]
    kept = whole(person, record)[-1]
    robbed_at = person.steps(record)[-1]
    assert robbed_at < STEPS
    assert "its machines went" in person("status")
    record = person.settled("lost", late_s=60)

    person("resume", record["run"])
    record = person.settled("succeeded", late_s=60)
    assert [one["outcome"] for one in record["attempts"]] == ["lost", "succeeded"]
    written = person.steps(record)
    again = written.index(robbed_at) + 1
    assert written[:again] == list(range(1, robbed_at + 1))
    assert written[again:] == list(range(kept + 1, STEPS + 1)), "it began from its checkpoint"
    losses = [line["loss"] for line in person.metrics(record)]
    repeated = losses[kept:again]
    assert losses[again : again + len(repeated)] == pytest.approx(repeated, abs=1e-5)


def whole(person: Person, record: Mapping[str, Any]) -> list[int]:
    """Return the steps of the checkpoints that are whole."""
    found = person.results(record).glob("checkpoints/step-*/run.json")
    return sorted(int(one.parent.name.removeprefix("step-")) for one in found)
