"""The offline cloud itself: what others' tests rest on, without SkyPilot.

`make test-cloud` runs this; `make test` does not collect it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud, Machine
from offline_cloud.home import AMI
from offline_cloud.image import CACHE
from offline_cloud.processes import born

BEGUN = "import time; print('begun', flush=True); time.sleep(600)"
START = "from offline_cloud.cloud import Cloud; c = Cloud.start({name!r}, with_parent={tied});"
WAIT = "print(c.folder, flush=True); import time; time.sleep(600)"


def until(true: Callable[[], bool], *, timeout_s: float) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)


def test_nothing_leads_out_and_nothing_of_the_caller_leads_in(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    routes = cloud.run("ip", "route", cwd=tmp_path).stdout
    assert "default" not in routes
    assert "10.76.0.0/14" in routes
    names = {line.split("=")[0] for line in cloud.run("env", cwd=tmp_path).stdout.splitlines()}
    assert "AWS_PROFILE" not in names
    (tmp_path / "here").write_text("seen")
    assert cloud.run("cat", "here", cwd=tmp_path).stdout == "seen"
    mark = f"/tmp/{tmp_path.name}-mark"
    cloud.run("touch", mark, str(Path.home() / ".offline-cloud-mark"), cwd=tmp_path)
    assert not Path(mark).exists()
    assert not (Path.home() / ".offline-cloud-mark").exists()


@pytest.mark.parametrize("way", ["kill", "interrupt"])
def test_a_command_can_be_ended_as_a_person_ends_it(cloud: Cloud, tmp_path: Path, way: str) -> None:
    begun = cloud.begin("python", "-c", BEGUN, cwd=tmp_path, log=tmp_path / "log")
    until(lambda: "begun" in begun.said, timeout_s=30)
    assert not begun.ended()
    if way == "kill":
        begun.kill()
        assert begun.wait(10) == -signal.SIGKILL
    else:
        begun.interrupt()
        assert begun.wait(10) == -signal.SIGINT
        assert "KeyboardInterrupt" in begun.said


def test_a_command_that_takes_too_long_is_ended(cloud: Cloud, tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        cloud.run("sh", "-c", "sleep 604 & sleep 604", cwd=tmp_path, timeout_s=1)
    assert cloud.run("pgrep", "-f", "sleep 604", cwd=tmp_path).stdout == ""


def test_a_cloud_ends_with_the_process_it_is_tied_to(cloud: Cloud) -> None:
    name = f"tied-{os.getpid()}"
    folder, starter = _started(name, tied=True)
    held = int((folder / "process").read_text().split()[0])
    assert born(held) is not None
    starter.kill()
    until(lambda: born(held) is None, timeout_s=10)


def test_the_next_start_removes_what_a_killed_cloud_left(cloud: Cloud) -> None:
    folder, starter = _started(f"left-{os.getpid()}", tied=False)
    starter.kill()
    held = int((folder / "process").read_text().split()[0])
    assert born(held) is not None, "untied, it outlives its starter"
    os.kill(held, signal.SIGKILL)
    until(lambda: born(held) is None, timeout_s=10)
    assert folder.exists()
    second = Cloud.start(f"next-{os.getpid()}", with_parent=True)
    assert not folder.exists()
    assert second.instances() == []
    second.stop()
    assert not second.folder.exists()
    assert cloud.run("true", cwd=Path("/")).returncode == 0, "the others are left alone"


def test_a_machine_keeps_its_disk_and_costs_nothing_while_it_is_stopped(
    cloud: Cloud, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text()
    users = f"users:\n- name: ubuntu\n  ssh_authorized_keys:\n  - {public}"
    (tmp_path / "user-data").write_text(f"#cloud-config\n{users}")
    subnet = "describe-subnets --filters Name=cidr-block,Values=10.77.1.0/24 --output text --query"
    where = _ec2(cloud, tmp_path, f"{subnet} Subnets[].SubnetId").strip()
    launch = f"run-instances --image-id {AMI} --instance-type m6i.large --subnet-id {where}"
    _ec2(cloud, tmp_path, f"{launch} --user-data file://user-data")
    (machine,) = [one for one in cloud.instances() if one.runs]
    login = ["ssh", "-o", "StrictHostKeyChecking=no", "-o", "ConnectTimeout=3", "-i", str(key)]
    login += [f"ubuntu@{machine.address}"]

    def says(command: str) -> str:
        return cloud.run(*login, command, cwd=tmp_path).stdout

    until(lambda: says("echo up") == "up\n", timeout_s=30)
    says("echo kept >note")
    me = "curl -s http://169.254.169.254/latest/meta-data/instance-id"
    assert says(me) == machine.id
    assert cloud.run(*me.split(), cwd=tmp_path).stdout != machine.id, "no machine asks"

    _ec2(cloud, tmp_path, f"stop-instances --instance-ids {machine.id}")
    stopped = _now(cloud, machine.id)
    assert stopped.state == "stopped"
    assert stopped.billed_s(time.time() + 1000) == stopped.billed_s(time.time())
    assert says("echo up") == ""

    _ec2(cloud, tmp_path, f"start-instances --instance-ids {machine.id}")
    until(lambda: says("cat note") == "kept\n", timeout_s=30)
    assert len(_now(cloud, machine.id).ran) == 2
    _ec2(cloud, tmp_path, f"terminate-instances --instance-ids {machine.id}")
    gone = _now(cloud, machine.id)
    assert gone.ended_s is not None
    assert gone.ended_s - gone.launched_s > gone.billed_s(time.time()) > stopped.billed_s(0)


def _ec2(cloud: Cloud, folder: Path, words: str) -> str:
    done = cloud.run("aws", "ec2", *words.split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _now(cloud: Cloud, name: str) -> Machine:
    (machine,) = [one for one in cloud.instances() if one.id == name]
    return machine


def _started(name: str, *, tied: bool) -> tuple[Path, subprocess.Popen[str]]:
    starter = subprocess.Popen(
        [sys.executable, "-c", START.format(name=name, tied=tied) + WAIT],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    folder = Path(starter.stdout.readline().strip())
    assert folder == CACHE / "clouds" / name
    return folder, starter
