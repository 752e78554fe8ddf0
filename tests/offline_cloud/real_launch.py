"""gpuplan's own commands on real SkyPilot: from the estimate to the account of what was spent.

`make test-cloud` runs this; `make test` does not collect it.
"""

import json
from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.person import Person, run_of

NO_CAPACITY = "InsufficientInstanceCapacity"
CANARY = "canary-8c1f0d2e7b"
LAUNCH = ("launch", "--provider", "aws", "--shared", "/shared", "-y")
SCRIPT = ("--framework", "none", "--command")


@pytest.fixture
def person(cloud: Cloud, tmp_path: Path, gpuplan_home: Path) -> Person:
    return Person(cloud, tmp_path / "project", gpuplan_home)


def holding(word: str, folder: Path) -> list[Path]:
    """Return the files below a folder that hold a word."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if word.encode() in path.read_bytes()]


def test_two_nodes_train_and_everything_is_accounted_for(person: Person) -> None:
    person.estimate(nodes=2, layout="fsdp2")
    said = person(*LAUNCH, "--steps", "120")
    record = person.settled("succeeded")
    run = record["run"]
    assert run_of(said) == run
    assert f"spent ${record['spent_usd']:,.2f}, predicted $" in said
    assert f"saved at /shared/{run}" in said

    machines = person.machines(record)
    assert [(one.type, one.region) for one in machines] == [("c7i.48xlarge", "us-east-1")] * 2
    assert {one.tags["gpuplan-run"] for one in machines} == {run}
    assert person.steps(record) == list(range(1, 121))
    out = person.results(record)
    kept = json.loads((out / "record.json").read_text())
    assert (kept["steps"], kept["accelerators"], kept["per_node"]) == (120, 2, 1), kept
    assert kept["layout"]["shard"] == 2
    assert list((out / "checkpoints").glob("*")), "no checkpoint was written"
    state = json.loads((out / "guard-state.json").read_text())
    assert state["verdict"]["why"] == "done"
    assert state["spent_usd"] <= record["spent_usd"]

    log = person("logs", run)
    assert "gpuplan-guard: " in log, "the log is kept when its machines are gone"
    assert "Nothing is open" in person("status")
    assert f"${record['spent_usd']:,.2f}" in person("history")
    assert "step" in person("actuals", str(out))
    assert "Nothing is open" in person("reconcile")


def test_capacity_in_another_region_and_nowhere(person: Person) -> None:
    person.estimate(layout="dp8", type="p4d.24xlarge")
    person.cloud.fail({"code": NO_CAPACITY, "region": "us-east-1"})
    launch = (*LAUNCH, "--region", "us-east-1,eu-west-1", *SCRIPT, "echo got here")
    assert "got here" in person(*launch)
    record = person.settled("succeeded")
    assert [one.region for one in person.machines(record)] == ["eu-west-1"]
    (attempt,) = record["attempts"]
    assert attempt["infra"].startswith("aws/eu-west-1")
    first, second = (place["usd_per_hour"] for place in record["places"])
    assert attempt["usd_per_hour"] == second > first

    person.cloud.fail({"code": NO_CAPACITY})
    before = len(person.cloud.instances())
    said = person(*launch, code=3)
    assert "None of the places has these machines now; nothing is rented." in said
    assert "--any-plan" in said
    record = person.settled("no-capacity")
    assert record["spent_usd"] == 0
    assert len(person.cloud.instances()) == before
    assert "Nothing is open" in person("reconcile")


def test_a_job_that_fails_and_the_value_of_a_secret(person: Person) -> None:
    person.estimate()
    (person.folder / "job.py").write_text(
        "import os, sys\n"
        "print('the secret has', len(os.environ['CANARY_TOKEN']), 'characters')\n"
        "sys.exit(7)\n"
    )
    job = (*SCRIPT, "job.py", "--secret", "CANARY_TOKEN")
    said = person(*LAUNCH, *job, code=1, CANARY_TOKEN=CANARY)
    record = person.settled("failed")
    assert "exit code 7" in record["why"]
    said += person("logs", record["run"])
    assert f"the secret has {len(CANARY)} characters" in said
    said += person("history", record["run"]) + person("status") + person("down", record["run"])
    assert CANARY not in said
    ours = (person.folder, person.home, person.cloud.shared)
    assert [path for folder in ours for path in holding(CANARY, folder)] == []
    logs = (person.cloud.home / "sky_logs", person.cloud.home / ".sky" / "api_server")
    written = [path for folder in logs for path in holding(CANARY, folder)]
    # SkyPilot keeps what it was asked in databases and files of its own, for the person alone.
    assert [path.name for path in written if path.suffix == ".log"] == []
    assert person.steps(record) == []
