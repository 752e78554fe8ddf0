"""What a launch cannot have and cannot do: no capacity, a job that fails, and a secret kept.

`make test-cloud` runs this; `make test` does not collect it.
"""

from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.person import Person

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


def test_without_capacity_elsewhere_with_a_secret_failing_and_then_nowhere(
    person: Person,
) -> None:
    person.estimate(layout="dp8", type="p4d.24xlarge")
    (person.folder / "job.py").write_text(
        "import os, sys\n"
        "print('the secret has', len(os.environ['CANARY_TOKEN']), 'characters')\n"
        "sys.exit(7)\n"
    )
    person.cloud.fail({"code": NO_CAPACITY, "region": "us-east-1"})
    job = (*SCRIPT, "job.py", "--secret", "CANARY_TOKEN")
    launch = (*LAUNCH, "--region", "us-east-1,eu-west-1", *job)
    said = person(*launch, code=1, CANARY_TOKEN=CANARY)
    record = person.settled("failed")
    assert "exit code 7" in record["why"]
    assert [one.region for one in person.machines(record)] == ["eu-west-1"]
    (attempt,) = record["attempts"]
    assert attempt["infra"].startswith("aws/eu-west-1")
    first, second = (place["usd_per_hour"] for place in record["places"])
    assert attempt["usd_per_hour"] == second > first

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

    person.cloud.fail({"code": NO_CAPACITY})
    before = len(person.cloud.instances())
    said = person(*launch, code=3, CANARY_TOKEN=CANARY)
    assert "None of the places has these machines now; nothing is rented." in said
    assert "--any-plan" in said
    record = person.settled("no-capacity")
    assert record["spent_usd"] == 0
    assert len(person.cloud.instances()) == before
    assert "Nothing is open" in person("reconcile")
