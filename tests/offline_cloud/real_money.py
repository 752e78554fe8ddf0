"""What ends a launch before its last step, and that it costs no more than was allowed.

`make test-cloud` runs this; `make test` does not collect it.
"""

import json
from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.person import START_S, Person, until

LAUNCH = ("launch", "--provider", "aws", "--shared", "/shared", "-y")
SCRIPT = ("--framework", "none", "--command")
TAIL_S = 60.0
"""Until autodown, with `--autodown 0`."""
SLACK_S = 10.0
"""One poll, one step, one checkpoint and cents that are rounded."""


@pytest.fixture
def person(cloud: Cloud, tmp_path: Path, gpuplan_home: Path) -> Person:
    return Person(cloud, tmp_path / "project", gpuplan_home)


def verdict(person: Person, record: dict) -> dict:
    """Return the last word of a launch's guard."""
    return json.loads((person.results(record) / "guard-state.json").read_text())["verdict"]


def test_stopped_by_hand_then_by_its_cap(person: Person) -> None:
    person.estimate()
    many = ("--steps", "1000000", "--on-projection", "continue", "--autodown", "0")
    person(*LAUNCH, *many, "--detach")
    record = person.record()
    assert record["state"] == "running"
    until(lambda: len(person.steps(record)) > 5, timeout_s=60, what="a step")
    said = person("stop", record["run"])
    assert "it writes a checkpoint first" in said
    record = person.settled("stopped")
    first = person.steps(record)
    assert first == list(range(1, len(first) + 1))
    assert "has ended already" in person("stop", record["run"], code=2)
    person("down", record["run"])
    assert person.record() == record, "what has ended stays as it is"

    # What is left beside the tail is for the start and some steps.
    rate = record["places"][0]["usd_per_hour"]
    cap = record["spent_usd"] + (TAIL_S + 100) / 3600 * rate
    said = person("resume", record["run"], "--max-cost", f"{cap:.2f}", code=4)
    record = person.settled("guarded")
    assert record["guard_why"] == "max-cost"
    assert "the limit is" in said
    steps = person.steps(record)
    assert steps == list(range(1, len(steps) + 1)), "it went on from its checkpoint"
    state = json.loads((person.results(record) / "guard-state.json").read_text())
    ended_s = max(one.ended_s or 0.0 for one in person.machines(record))
    if len(steps) > len(first):
        assert state["spent_usd"] + TAIL_S / 3600 * rate <= cap + SLACK_S / 3600 * rate
    # Where the machines took longer to start than is allowed in all, nothing was begun; where the
    # processors are shared, giving them back may take longer than autodown.
    most = max(cap, state["spent_usd"] + TAIL_S / 3600 * rate)
    slow_s = max(0.0, ended_s - state["seen_at_s"] - TAIL_S)
    assert record["spent_usd"] <= most + (SLACK_S + slow_s + START_S) / 3600 * rate
    assert "allow more" in person("resume", record["run"], code=2)


def test_a_projection_above_the_estimate_ends_a_run(person: Person) -> None:
    person.estimate()
    said = person(*LAUNCH, "--steps", "1000000", "--on-projection", "stop", code=4)
    record = person.settled("guarded")
    assert record["guard_why"] == "projection"
    assert "above the $" in record["why"]
    assert record["why"] in said
    last = person.steps(record)[-1]
    assert 33 <= last < 3000
    assert list((person.results(record) / "checkpoints").glob(f"*{last}*")), "no checkpoint"


def test_a_smoke_run_says_what_the_whole_would_cost(person: Person) -> None:
    person.estimate()
    said = person(*LAUNCH, "--steps", "20000", "--smoke")
    record = person.settled("succeeded")
    assert verdict(person, record)["why"] == "smoke"
    assert "a step takes" in said
    assert "the run costs $" in said
    assert person.steps(record)[-1] == 33


def test_machines_that_go_by_themselves_are_accounted_for(person: Person, tmp_path: Path) -> None:
    person.estimate()
    # Killed before it knows of any machine; nobody looks until all are gone.
    log = tmp_path / "log"
    begun = person.begin(*LAUNCH, "--autodown", "0", *SCRIPT, "sleep 1", log=log)
    until(lambda: bool(person.launches()), timeout_s=60, what="the intent")
    record = person.record()
    until(lambda: bool(person.machines(record)), timeout_s=90, what="a machine")
    begun.kill()
    until(
        lambda: all(not one.runs for one in person.machines(record)), timeout_s=240, what="the end"
    )
    said = person("reconcile")
    assert record["run"] in said
    record = person.settled("lost", late_s=90)
    assert "Nothing is open" in person("reconcile")
