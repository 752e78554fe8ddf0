"""Two nodes from the estimate to the account: stopped, gone on from a bucket, ended by its cap.

`make test-cloud` runs this; `make test` does not collect it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.person import Person, step_lines, until, whole_checkpoints

LAUNCH = ("launch", "--provider", "aws", "--synthetic", "-y")
UNSTOPPED = ("--on-projection", "continue")
BUCKET = "s3://gpuplan-results"
TAIL_S = 60.0
"""Until autodown, with `--autodown 0`."""
SLACK_S = 10.0
"""One poll, one step, one checkpoint and cents that are rounded."""


@pytest.fixture
def person(cloud: Cloud, tmp_path: Path, gpuplan_home: Path) -> Person:
    return Person(cloud, tmp_path / "project", gpuplan_home)


def there(person: Person) -> str:
    """Return what the bucket lists of checkpoints that are named whole."""
    listed = person.cloud.run("aws", "s3", "ls", "--recursive", BUCKET, cwd=Path("/")).stdout
    return "\n".join(line for line in listed.splitlines() if line.endswith("run.json"))


def bring(person: Person, record: Mapping[str, Any], folder: Path) -> Path:
    """Copy the results of a launch out of their bucket; return the folder."""
    done = person.cloud.run("aws", "s3", "sync", record["results"], str(folder), cwd=Path("/"))
    assert done.returncode == 0, done.stderr
    return folder


def kept_plan(person: Person, instance_type: str) -> str:
    """Return the id of the newest estimate's plan on these machines of AWS."""
    kept = json.loads(person("plans", "--format", "json"))["estimates"][0]
    offers = {plan["id"]: plan["offer"] for plan in kept["plans"]}
    places = ((one, offer["provider"], offer["instance_type"]) for one, offer in offers.items())
    (found,) = [one for one, *place in places if place == ["aws", instance_type]]
    return found


@pytest.mark.timeout(2400)
def test_two_nodes_and_a_bucket_stopped_by_hand_then_by_the_cap(
    person: Person, tmp_path: Path
) -> None:
    person.cloud.run("aws", "s3", "mb", BUCKET, cwd=tmp_path)
    # As the README has it: estimate, report, launch, actuals, and the report again.
    person.estimate(nodes=2, layout="fsdp2")
    plan = kept_plan(person, "c7i.48xlarge")
    planned = json.loads(person("report", plan, "-q", "--format", "json"))
    assert planned["accelerator_hours"] > 0
    assert not planned["spent"]
    many = ("--outputs", f"{BUCKET}/team", "--steps", "1000000", "--checkpoint-every", "20")
    person(*LAUNCH, plan, *many, *UNSTOPPED, "--autodown", "0", "--detach")
    record = person.record()
    assert (record["state"], record["plan"]) == ("running", plan)
    until(lambda: bool(there(person)), timeout_s=600, every_s=2, what="a checkpoint")
    said = person("stop", record["run"], timeout_s=900.0)
    assert "it writes a checkpoint first" in said
    record = person.settled("stopped")
    assert f"spent ${record['spent_usd']:,.2f}, predicted $" in said
    assert f"saved at {BUCKET}/team/{record['run']}" in said
    brought = bring(person, record, tmp_path / "first")
    kept = whole_checkpoints(brought)[-1]
    assert [line["step"] for line in step_lines(brought)] == list(range(1, kept + 1))
    shown = json.loads((brought / "record.json").read_text())
    assert (shown["steps"], shown["accelerators"], shown["per_node"]) == (kept, 2, 1), shown
    assert shown["layout"]["shard"] == 2
    assert "step" in person("actuals", str(brought))
    assert "gpuplan-guard: " in person("logs", record["run"]), "kept when its machines are gone"
    machines = person.machines(record)
    assert [(one.type, one.region) for one in machines] == [("c7i.48xlarge", "us-east-1")] * 2
    assert {one.tags["gpuplan-run"] for one in machines} == {record["run"]}
    assert "has ended already" in person("stop", record["run"], code=2)
    person("down", record["run"])
    assert person.record() == record, "what has ended stays as it is"

    # What is left beside the tail is for the start, as long as that of before, and some steps.
    rate = record["places"][0]["usd_per_hour"] * record["nodes"]
    idle_usd = record["spent_usd"] - record["attempts"][0]["command_usd"]
    cap = record["spent_usd"] + (TAIL_S + 150) / 3600 * rate
    cap = max(cap, record["spent_usd"] + idle_usd + (TAIL_S + 30) / 3600 * rate)
    resume = ("resume", record["run"], "-y", "--max-cost", f"{cap:.2f}")
    said = person(*resume, code=4, timeout_s=900.0)
    record = person.settled("guarded")
    assert record["guard_why"] == "max-cost"
    assert "the limit is" in said
    brought = bring(person, record, tmp_path / "second")
    steps = [line["step"] for line in step_lines(brought)]
    assert steps == list(range(1, len(steps) + 1)), "it went on from its checkpoint"
    state = json.loads((brought / "guard-state.json").read_text())
    ended_s = max(one.ended_s or 0.0 for one in person.machines(record))
    if len(steps) > kept:
        assert state["spent_usd"] + TAIL_S / 3600 * rate <= cap + SLACK_S / 3600 * rate
    # Where the machines took longer to start than is allowed in all, nothing was begun; where the
    # processors are shared, giving them back may take longer than autodown.
    most = max(cap, state["spent_usd"] + TAIL_S / 3600 * rate)
    slow_s = max(0.0, ended_s - state["seen_at_s"] - TAIL_S)
    # The account also counts until this machine sees that they are gone, which `settled` bounds.
    assert person.billed_usd(record) <= most + (SLACK_S + slow_s) / 3600 * rate
    assert "allow more" in person("resume", record["run"], code=2)
    # What is spent stands beside what was planned, in the same report.
    report = json.loads(person("report", plan, "-q", "--format", "json"))
    assert report["total"] == planned["total"]
    (spent,) = report["spent"]
    assert (spent["launch"], spent["experiment"]) == (record["run"], plan)
    assert spent["usd"] == pytest.approx(record["spent_usd"], abs=0.01)
    assert spent["planned_usd"] == planned["experiments"][0]["run_usd"]
    assert "Nothing is open" in person("status")
    assert f"${record['spent_usd']:,.2f}" in person("history")
    assert "Nothing is open" in person("reconcile")
