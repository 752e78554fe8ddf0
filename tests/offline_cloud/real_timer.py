"""The timer on every node ends machines that nobody else ends, whatever became of the rest.

The command that launched them is gone, and nobody asks for anything until they have ended.

`make test-cloud` runs this; `make test` does not collect it.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from offline_cloud.cloud import Cloud, Machine
from offline_cloud.hurried import hurried
from offline_cloud.person import Person, until, whole_checkpoints

LAUNCH = ("launch", "--provider", "aws", "--shared", "/shared", "-y", "--detach")
UNOWNED_S = 60.0
"""Longer than from the end of a set-up to the job; a real launch has three hours."""
SETUP_S = 60.0
"""Longer than from the first node's set-up to the last one's."""
STEPPED_S = 3 * 86400


@pytest.fixture
def person(cloud: Cloud, tmp_path: Path, gpuplan_home: Path) -> Person:
    return Person(cloud, tmp_path / "project", gpuplan_home)


def on_node(person: Person, node: str, line: str) -> str:
    """Run a line of shell on a node, by the name that ssh has for it; return what it wrote."""
    done = person.cloud.run("ssh", node, line, cwd=person.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def all_ended(machines: list[Machine], person: Person) -> bool:
    ids = {one.id for one in machines}
    return not [one for one in person.cloud.instances() if one.runs and one.id in ids]


@pytest.mark.timeout(900)
def test_a_set_up_that_hangs_and_a_node_that_is_rebooted_end(
    person: Person, tmp_path: Path
) -> None:
    person.estimate(nodes=2, layout="fsdp2")
    seen = person.cloud.shared / "seen"
    seen.mkdir()
    seen.chmod(0o777)
    marks = f"/shared/{seen.name}"
    stopped = f"{{ touch {marks}/stopped-$(hostname); exit 1; }}"
    hangs = f"touch {marks}/hangs-$(hostname); sleep 100000 || {stopped}"
    command = hurried(tmp_path, setup_s=SETUP_S, after_setup_s=5.0, unowned_s=UNOWNED_S, poll_s=1.0)
    person(*LAUNCH, "--synthetic", "--setup", hangs, command=command, code=None, timeout_s=600)
    record = person.record()
    until(lambda: len(list(seen.glob("hangs-*"))) == 2, timeout_s=300, what="two set-ups")
    machines = person.machines(record)
    (other,) = [one for one in machines if not one.tags["Name"].endswith("-head")]
    person.cloud.reboot_machines([other])
    within_s = max(SETUP_S, UNOWNED_S) + 240
    until(lambda: all_ended(machines, person), timeout_s=within_s, what="the end of both")
    ended = person.machines(record)
    assert [one.state for one in ended] == ["terminated"] * 2, "no disk is billed either"
    assert len(list(seen.glob("stopped-*"))) == 1, "that of the node which was not rebooted"
    assert record["run"] in person("reconcile")
    # Nobody was there to read why. One node ended a little before the other.
    person.settled("lost", late_s=120)
    assert "Nothing is open" in person("reconcile")


@pytest.mark.timeout(900)
def test_without_skylet_and_with_a_clock_that_was_set_a_machine_ends_after_its_run(
    person: Person, tmp_path: Path
) -> None:
    person.estimate()
    command = hurried(tmp_path, unowned_s=UNOWNED_S, poll_s=1.0)
    steps = ("--steps", "1000000", "--on-projection", "continue", "--checkpoint-every", "10h")
    person(*LAUNCH, "--synthetic", *steps, command=command, timeout_s=600)
    record = person.record()
    results = person.results(record)
    until(lambda: len(person.steps(record)) > 5, timeout_s=300, what="steps")
    (machine,) = person.machines(record)

    # When a machine came up moves with its clock, which is all that SkyPilot sees of one that is
    # set; its own end of idle machines is off from then on. No namespace has a clock of its own.
    seen = on_node(person, record["cluster"], "cat /proc/stat")
    moved = re.sub(r"(?m)^btime (\d+)", lambda one: f"btime {int(one[1]) + STEPPED_S}", seen)
    (person.cloud.shared / "stat").write_text(moved)
    on_node(person, record["cluster"], "sudo mount --bind /shared/stat /proc/stat")
    trains_on(person, record)
    on_node(person, record["cluster"], "pkill -9 -f 'sky[.]skylet[.]skylet'")
    trains_on(person, record)

    # It ends as by a stop file of the user's. There is nobody else who would tear it down.
    on_node(person, record["cluster"], "touch gpuplan-stop")
    until(lambda: all_ended([machine], person), timeout_s=UNOWNED_S + 300, what="the end")
    (machine,) = person.machines(record)
    assert machine.state == "terminated"
    assert whole_checkpoints(results) == [person.steps(record)[-1]]
    state = json.loads((results / "guard-state.json").read_text())
    assert state["verdict"]["why"] == "stop"
    assert record["run"] in person("reconcile")
    person.settled("lost", late_s=90)
    assert "Nothing is open" in person("reconcile")


def trains_on(person: Person, record: Mapping[str, Any]) -> None:
    """Wait for further steps."""
    before = person.steps(record)[-1]
    until(lambda: person.steps(record)[-1] > before + 5, timeout_s=120, what="further steps")
