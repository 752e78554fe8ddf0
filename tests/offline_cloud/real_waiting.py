"""A spot launch that never gets machines: whoever follows it ends it once its deadline has passed.

`make test-cloud` runs this; `make test` does not collect it.
"""

import json
import time
from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.person import Person, until

LAUNCH = ("launch", "--provider", "aws", "--shared", "/shared", "-y", "--spot", "--detach")
SCRIPT = ("--framework", "none", "--command", "job.py")
ENDED_WITHIN_S = 400.0


@pytest.fixture
def person(cloud: Cloud, tmp_path: Path, gpuplan_home: Path) -> Person:
    return Person(cloud, tmp_path / "project", gpuplan_home)


@pytest.mark.timeout(1500)
def test_a_wait_that_passes_its_deadline_is_ended_while_it_is_followed(
    person: Person, tmp_path: Path
) -> None:
    person.estimate()
    (person.folder / "job.py").write_text("print('it trains')\n")
    person.cloud.fail({"code": "InsufficientInstanceCapacity"})
    before = len(person.cloud.instances())
    said = person(*LAUNCH, "--deadline", "6h", *SCRIPT, timeout_s=600)
    assert "SkyPilot waits without end" in said
    record = person.record()
    until(
        lambda: "waits for machines" in person("status"),
        timeout_s=ENDED_WITHIN_S,
        what="the wait",
        every_s=5,
    )
    # No launch may be given less time than it takes: its hour is cut short here.
    orders = Path(record["folder"]) / "job" / "guard.json"
    held = json.loads(orders.read_text())
    orders.write_text(json.dumps({**held, "deadline_s": time.time() + 30}))
    following = person.begin("logs", "-f", record["run"], log=tmp_path / "logs")
    following.wait(ENDED_WITHIN_S)

    record = person.record()
    assert (record["state"], record["outcome"]) == ("ended", "guarded"), following.said
    assert "passed while it waited for machines" in record["why"], following.said
    (attempt,) = record["attempts"]
    # Machines may have come and gone unseen, so it counts as if they were there all the time.
    assert (attempt["guard_why"], attempt["is_bound"]) == ("deadline", True)
    assert len(person.cloud.instances()) == before
    assert "Nothing is open" in person("reconcile")
