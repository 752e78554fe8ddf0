"""Spot machines as most people have them: SkyPilot watches the job from a machine of its own.

`make test-cloud` runs this; `make test` does not collect it.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud, Machine
from offline_cloud.image import missing
from offline_cloud.person import Person, until

from gpuplan.catalog.terms.controllers import controller_machine
from gpuplan.launcher.lifecycle.engine import CONTROLLER_PREFIX
from gpuplan.planner.cost.launch_cost import CONTROLLER_IDLE_HOURS

LAUNCH = ("launch", "--provider", "aws", "--shared", "/shared", "--synthetic", "-y")
STEPS = 200
IN_ALL_S = 900.0


@pytest.fixture
def own_cloud(
    require: Callable[[str, str], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cloud]:
    require("cloud", missing() or "SkyPilot is not installed: make test-cloud installs it")
    base = tmp_path_factory.getbasetemp()
    name = f"controller-{os.getpid()}"
    cloud = Cloud.start(name, visible=[base], with_parent=True, with_controller=True)
    yield cloud
    left = [one for one in cloud.instances() if one.runs]
    cloud.stop()
    assert not left, f"the test left machines that cost money: {left}"


@pytest.mark.timeout(1500)
def test_the_controller_is_a_machine_that_is_asked_for_counted_found_and_ended(
    own_cloud: Cloud, tmp_path: Path, gpuplan_home: Path
) -> None:
    person = Person(own_cloud, tmp_path / "project", gpuplan_home)
    person.estimate()
    words = (*LAUNCH, "--spot", "--steps", str(STEPS), "--on-projection", "continue")
    begun = person.begin(*words, log=tmp_path / "launch")
    until(lambda: bool(person.launches()), timeout_s=60, what="the intent")
    rate = controller_rate()
    record = person.record()
    assert Decimal(str(record["controller_usd_per_hour"])) == rate
    assert "controller" in begun.said, "the question names it"
    until(lambda: bool(controllers(own_cloud)), timeout_s=IN_ALL_S, what="the controller")
    assert begun.wait(IN_ALL_S) == 0, begun.said

    record = person.settled("succeeded")
    (machine,) = controllers(own_cloud)
    assert machine.type == "m6i.xlarge"
    assert machine.runs, "it waits for further jobs"
    # All that the controller has cost by now, and the minutes until it stops, are in the account.
    hours = Decimal(str(machine.billed_s(time.time()))) / 3600
    paid = Decimal(str(person.billed_usd(record))) + rate * hours
    spent = Decimal(str(record["spent_usd"]))
    assert paid - Decimal("0.01") <= spent <= Decimal(str(record["usd_worst"]))
    assert CONTROLLER_IDLE_HOURS * rate <= spent - Decimal(str(person.billed_usd(record)))

    said = person("reconcile")
    assert "SkyPilot's controller of managed jobs" in said
    assert f"${rate:.2f} an hour" in said
    name = machine.tags["skypilot-cluster-name"]
    (word,) = re.findall(rf"`sky down ({CONTROLLER_PREFIX}[^`]+)` ends it", said.replace("\n", " "))
    assert name.startswith(word), "what it names is what runs"
    # Where jobs would lose their watch, SkyPilot has the user type a word, whatever its options.
    ended = own_cloud.run("sh", "-c", f"echo delete | sky down {word}", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [one for one in own_cloud.instances() if one.runs] == []
    assert "controller" not in person("reconcile")
    assert person.record() == record


def controller_rate() -> Decimal:
    """Return the controller's price where the job is tried."""
    machine = controller_machine("aws", "us-east-1")
    assert machine is not None
    return machine.usd_per_hour


def controllers(cloud: Cloud) -> list[Machine]:
    """Return the controllers that there ever were."""
    return cloud.of_cluster(CONTROLLER_PREFIX.rstrip("-"))
