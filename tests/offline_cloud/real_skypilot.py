"""Real SkyPilot on the offline cloud: what every launch of gpuplan rests on.

`make test-cloud` runs this, in an environment that has SkyPilot; `make test` does not collect it.
"""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from offline_cloud.cloud import Cloud, Machine

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.node_setup import Environment, setup_script

CPU_TORCH = "2.13.0"
ON_A_NODE = """\
. "$HOME/gpuplan-env/bin/activate"
python -c 'import torch; print("torch", torch.__version__)'
echo "rank $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES on $(hostname)"
echo "$SKYPILOT_NODE_RANK" >"/shared/two-$SKYPILOT_NODE_RANK"
cat /data/words
echo "kept" >"/outputs/two-$SKYPILOT_NODE_RANK"
[ ! -e /work ] && [ ! -e /root/.pyenv ] && echo "sees nothing of the machine below"
python3 - <<'PYTHON'
import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as error:
    print("no way out:", error.strerror)
PYTHON
"""
NO_CAPACITY = "InsufficientInstanceCapacity"


class Sky:
    """SkyPilot's command line inside a cloud, and the folder where its tasks lie."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.cloud = cloud
        self.folder = folder

    def __call__(self, *words: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        return self.cloud.run("sky", *words, cwd=self.folder, timeout_s=timeout_s)

    def good(self, *words: str, timeout_s: float = 300) -> str:
        """Run a command, which must succeed, and return what it wrote."""
        done = self(*words, timeout_s=timeout_s)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def launch(self, cluster: str, **task: object) -> subprocess.CompletedProcess[str]:
        """Launch a task on a cluster and return how it ended, with its output."""
        path = self.folder / f"{cluster}.yaml"
        path.write_text(yaml.safe_dump({"name": cluster, **task}))
        return self("launch", "-y", "-c", cluster, str(path))

    def clusters(self) -> list[str]:
        """Return the names of the clusters that SkyPilot knows, asked of the cloud."""
        script = (
            "import json, sky; found = sky.get(sky.status(refresh=sky.StatusRefreshMode.FORCE));"
            "print(json.dumps([one['name'] for one in found]))"
        )
        done = self.cloud.run("python", "-c", script, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def sky(cloud: Cloud, tmp_path: Path) -> Sky:
    return Sky(cloud, tmp_path)


def ended(cloud: Cloud, cluster: str) -> list[Machine]:
    """Return a cluster's machines, of which none may run."""
    machines = cloud.of_cluster(cluster)
    assert [one.state for one in machines if one.state != "terminated"] == []
    return machines


def until(true: Callable[[], bool], *, timeout_s: float) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(1)


def test_two_nodes_run_a_job_and_go(cloud: Cloud, sky: Sky) -> None:
    (sky.folder / "project").mkdir()
    (sky.folder / "words").write_text("words of a bucket\n")
    for words in ("mb s3://results", "mb s3://words", "cp words s3://words/words"):
        cloud.run("aws", "s3", *words.split(), cwd=sky.folder).check_returncode()
    cpu = load_catalogue().accelerators["CPU-2x-Xeon-8488C"]
    environment = Environment(found=None, torch_version=CPU_TORCH, python_version="3.11")
    started = time.time()
    done = sky.launch(
        "two",
        num_nodes=2,
        file_mounts={
            "/data": {"source": "s3://words", "mode": "COPY"},
            "/outputs": {"source": "s3://results", "mode": "MOUNT_CACHED"},
        },
        workdir=str(sky.folder / "project"),
        resources={
            "infra": "aws",
            "instance_type": "c7i.48xlarge",
            "labels": {"gpuplan-run": "r1"},
        },
        setup=setup_script(environment, cpu, with_torch=True, image=None),
        run=ON_A_NODE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    logs = sky.good("logs", "two", "1")
    no_way_out = "no way out: Network is unreachable"
    for said in (f"torch {CPU_TORCH}", "sees nothing of the machine", no_way_out, "words of a b"):
        assert logs.count(said) == 2, logs
    assert "rank 0 of 2" in logs
    assert "rank 1 of 2" in logs
    assert {path.name for path in cloud.shared.glob("two-*")} == {"two-0", "two-1"}
    up = cloud.of_cluster("two")
    assert [(one.state, one.type, one.market) for one in up] == [
        ("running", "c7i.48xlarge", "on-demand")
    ] * 2
    assert all(one.tags["gpuplan-run"] == "r1" for one in up)

    sky.good("down", "-y", "two")
    gone = time.time()
    machines = ended(cloud, "two")
    assert len(machines) == 2
    assert all(0 < one.billed_s(gone + 1000) <= gone - started for one in machines)
    assert sky.clusters() == []
    kept = cloud.run("aws", "s3", "ls", "s3://results", cwd=sky.folder).stdout
    assert "two-0" in kept
    assert "two-1" in kept


def test_a_region_without_capacity_is_passed_over_and_a_cluster_goes_by_itself(
    cloud: Cloud, sky: Sky
) -> None:
    cloud.fail({"code": NO_CAPACITY, "region": "us-east-1"})
    done = sky.launch(
        "over", resources={"infra": "aws", "instance_type": "m6i.large"}, run="echo got here"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "got here" in done.stdout
    assert [one.region for one in cloud.of_cluster("over")] == ["us-west-2"]
    assert "us-east-1" not in {one.region for one in cloud.instances() if one.runs}

    sky.good("autostop", "-y", "over", "--idle-minutes", "0", "--down")
    until(lambda: not any(one.runs for one in cloud.of_cluster("over")), timeout_s=180)
    # A status asked for within two seconds of another is the other's.
    until(lambda: sky.clusters() == [], timeout_s=60)


def test_no_capacity_anywhere_costs_nothing(cloud: Cloud, sky: Sky) -> None:
    cloud.fail({"code": NO_CAPACITY, "type": "p5.48xlarge"})
    before = len(cloud.instances())
    done = sky.launch("none", resources={"infra": "aws", "accelerators": "H100:8"}, run="true")
    assert done.returncode != 0
    assert "Failed to provision" in done.stdout + done.stderr
    assert len(cloud.instances()) == before
    assert sky.clusters() == []


def test_a_failed_job_and_a_preemption_are_seen(cloud: Cloud, sky: Sky) -> None:
    cloud.fail({"code": NO_CAPACITY, "market": "on-demand"})
    spot = {"infra": "aws", "instance_type": "m6i.large", "use_spot": True}
    done = sky.launch("spot", resources=spot, run="echo failing; exit 3")
    assert "failing" in done.stdout
    assert done.returncode == 100, done.stdout + done.stderr
    assert [one.market for one in cloud.of_cluster("spot")] == ["spot"]
    assert sky.clusters() == ["spot"]

    assert len(cloud.terminate("spot")) == 1
    until(lambda: sky.clusters() == [], timeout_s=60)
    (machine,) = ended(cloud, "spot")
    assert machine.ended_s is not None
    assert machine.billed_s(time.time()) == machine.ended_s - machine.launched_s
