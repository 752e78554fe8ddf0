"""A run on spot machines that are taken away, and the machines that it ends on for its deadline.

`make test-cloud` runs this; `make test` does not collect it.
"""

import json
import time
from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.person import Person, until, whole_checkpoints

from gpuplan.launcher.guard.decisions.handover import RESTARTS
from gpuplan.launcher.prepare.task.guard_config import restart_s

LAUNCH = ("launch", "--provider", "aws", "--shared", "/shared", "--synthetic", "-y")
STEPS = 600
STARTS_S = RESTARTS * restart_s()
IN_ALL_S = 200.0
"""Beside those: the first start and all steps."""
RETRY_S = 300.0
"""SkyPilot tries again a minute after it was refused, and longer after each further refusal."""
ELSEWHERE_S = 1000.0
"""A start elsewhere and the steps that are left; six minutes on a machine that is idle."""
NO_CAPACITY = {"code": "InsufficientInstanceCapacity"}


@pytest.fixture
def person(cloud: Cloud, tmp_path: Path, gpuplan_home: Path) -> Person:
    return Person(cloud, tmp_path / "project", gpuplan_home)


@pytest.mark.timeout(1500)
def test_spot_machines_are_taken_away_and_others_meet_the_deadline(
    person: Person, tmp_path: Path
) -> None:
    person.estimate()
    deadline = f"{STARTS_S + IN_ALL_S:.0f}s"
    words = ("--spot", "--deadline", deadline, "--steps", str(STEPS), "--checkpoint-every", "20")
    asked_s = time.time()
    begun = person.begin(*LAUNCH, *words, "--on-projection", "continue", log=tmp_path / "launch")
    until(lambda: bool(person.launches()), timeout_s=60, what="the intent")
    record = person.record()
    results = person.results(record)
    # SkyPilot counts a machine as lost only once it has seen the job run.
    until(lambda: "Streaming logs" in begun.said, timeout_s=IN_ALL_S, what="the job")
    until(lambda: bool(whole_checkpoints(results)), timeout_s=IN_ALL_S, what="a checkpoint")
    (first,) = person.machines(record)
    assert first.market == "spot"
    # There are others only when they may not be lost once more: a start can be quick or slow.
    # And none on demand, which would be taken at once where there are no spot machines.
    person.cloud.fail(NO_CAPACITY)
    person.cloud.terminate_machines([first])
    lost_s = time.time()
    robbed_at, kept = person.steps(record)[-1], whole_checkpoints(results)[-1]
    until(lambda: time.time() > asked_s + IN_ALL_S, timeout_s=IN_ALL_S, what="the waiting")
    # Spot machines first: SkyPilot may have been refused some a moment ago, and ask for others now.
    person.cloud.fail({**NO_CAPACITY, "market": "on-demand"})
    until(lambda: len(person.machines(record)) == 2, timeout_s=RETRY_S, what="a spot machine")
    without_s = time.time() - lost_s
    person.cloud.fail()
    assert begun.wait(ELSEWHERE_S) == 0, begun.said

    # The guard counts from attempt to attempt, also while no machines can be had.
    record = person.settled("succeeded", late_s=without_s)
    (attempt,) = record["attempts"]
    assert (attempt["preemptions"], attempt["spot"]) == (1, True)
    assert [one.market for one in person.machines(record)] == ["spot", "spot", "on-demand"]
    written = person.steps(record)
    again = written.index(robbed_at) + 1
    assert written[:again] == list(range(1, robbed_at + 1))
    assert written[again:] == list(range(kept + 1, STEPS + 1)), "it began from its checkpoint"
    losses = [line["loss"] for line in person.metrics(record)]
    repeated = losses[kept:again]
    assert losses[again : again + len(repeated)] == pytest.approx(repeated, abs=1e-5)
    lines = (results / "guard-attempts.jsonl").read_text().splitlines()
    ends = [(json.loads(line)["verdict"] or {}).get("why") for line in lines]
    assert ends[-2:] == ["hand-over", "done"]
    assert "Nothing is open" in person("reconcile")


@pytest.mark.timeout(1500)
def test_a_notice_saves_the_work_and_the_run_goes_on_elsewhere(
    person: Person, tmp_path: Path
) -> None:
    person.estimate()
    words = ("--spot", "--steps", str(STEPS), "--checkpoint-every", "30m")
    begun = person.begin(*LAUNCH, *words, "--on-projection", "continue", log=tmp_path / "launch")
    until(lambda: bool(person.launches()), timeout_s=60, what="the intent")
    record = person.record()
    results = person.results(record)
    until(lambda: "Streaming logs" in begun.said, timeout_s=IN_ALL_S, what="the job")
    until(lambda: len(person.steps(record)) > 50, timeout_s=IN_ALL_S, what="steps")
    assert not whole_checkpoints(results), "none is due for half an hour"
    (first,) = person.machines(record)
    person.cloud.warn_machines([first])
    until(lambda: bool(whole_checkpoints(results)), timeout_s=120, what="a checkpoint")
    assert begun.wait(ELSEWHERE_S) == 0, begun.said

    record = person.settled("succeeded")
    assert [one.market for one in person.machines(record)] == ["spot", "spot"]
    assert person.steps(record) == list(range(1, STEPS + 1)), "no step was trained twice"
    lines = (results / "guard-attempts.jsonl").read_text().splitlines()
    assert [json.loads(line)["verdict"]["why"] for line in lines] == ["notice", "done"]
