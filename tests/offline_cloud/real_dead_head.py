"""The head node dies while a job runs, and nobody is there: the others end by their own timers.

`make test-cloud` runs this; `make test` does not collect it.
"""

from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.person import Person, until

LAUNCH = ("launch", "--provider", "aws", "--shared", "/shared", "--synthetic", "-y", "--detach")
MANY = ("--steps", "1000000", "--on-projection", "continue")
UNOWNED_S = 45.0
"""Longer than from the end of the set-up to the job; a real launch has three hours."""
HURRIED = f"""\
import sys

from gpuplan.cli.main import main
from gpuplan.launcher.prepare.task import guard_config

guard_config.UNOWNED_MORE_S = {UNOWNED_S} - guard_config.SETUP_S
sys.exit(main())
"""


@pytest.fixture
def person(cloud: Cloud, tmp_path: Path, gpuplan_home: Path) -> Person:
    return Person(cloud, tmp_path / "project", gpuplan_home)


@pytest.mark.timeout(1200)
def test_a_dead_head_node_leaves_no_other_that_costs_money(person: Person, tmp_path: Path) -> None:
    person.estimate(nodes=2, layout="fsdp2")
    hurried = tmp_path / "hurried.py"
    hurried.write_text(HURRIED)
    person(*LAUNCH, *MANY, command=("python", str(hurried)), timeout_s=600)
    record = person.record()
    until(lambda: len(person.steps(record)) > 5, timeout_s=300, what="steps")
    (head,) = [one for one in person.machines(record) if one.tags["Name"].endswith("-head")]
    person.cloud.crash_machines([head])
    # SkyPilot's own end of idle machines was on the head node. Nobody asks for anything.
    until(
        lambda: [one.id for one in person.machines(record) if one.runs] == [head.id],
        timeout_s=UNOWNED_S + 120,
        what="the end of the other node",
    )
    (other,) = [one for one in person.machines(record) if one.id != head.id]
    assert other.state == "terminated", "no disk of it is billed either"

    # The cloud goes on to bill the dead one: it is named, with what it costs and what ends it.
    rate = record["places"][0]["usd_per_hour"] * record["nodes"]
    for command in ("status", "reconcile"):
        said = " ".join(person(command, code=None).split())
        assert "machines that do not answer" in said
        assert f"They cost ${rate:,.2f} an hour" in said
        assert f"`gpuplan down {record['run']}` ends it" in said
    assert person.record()["state"] == "running"
    person("down", record["run"])
    ended_s = other.ended_s
    assert ended_s is not None
    (head,) = [one for one in person.machines(record) if one.id == head.id]
    assert head.ended_s is not None
    # Both nodes are counted until then: more than is billed, by what the other did not run.
    record = person.settled("stopped", late_s=(head.ended_s - ended_s) / record["nodes"])
    assert "Nothing is open" in person("reconcile")
