"""A simulated machine that powers off ends itself, and nothing of the machine that runs this."""

import subprocess
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SUPPORT = Path(__file__).parent / "support" / "offline_cloud"
SHUTDOWN = SUPPORT / "shutdown.sh"
FIRST = """
[ "$$" = 1 ] || exit 9
mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib || exit 8
: >/run/offline-cloud-machine
trap 'cat /var/lib/powered-off && echo seen; exit 3' TERM
"{0}" &
while :; do sleep 0.05; done
"""
"""The first process of a namespace, as sshd is of a machine."""


def in_namespaces(script: str) -> subprocess.CompletedProcess[str]:
    own = ["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private"]
    return subprocess.run(
        ["unshare", *own, "sh", "-c", script], capture_output=True, text=True, timeout=30
    )


def test_what_a_machine_calls_shutdown_ends_its_first_process_and_leaves_a_mark(require) -> None:
    require("linux", "machines are namespaces")
    require("root", "namespaces of processes and mounts")
    done = in_namespaces(FIRST.format(SHUTDOWN))
    assert (done.returncode, done.stdout) == (3, "seen\n"), done.stderr


def test_outside_a_simulated_machine_it_does_nothing() -> None:
    # It asks for a file that only machine.sh makes, in the machine's own /run.
    assert not Path("/run/offline-cloud-machine").exists()
    text = SHUTDOWN.read_text(encoding="utf-8")
    first = [line for line in text.splitlines() if not line.startswith("#")][0]
    assert first == "[ -e /run/offline-cloud-machine ] || exit 1"


def test_a_machine_removes_every_real_shutdown_once_it_sees_nothing_of_the_host() -> None:
    text = (SUPPORT / "machine.sh").read_text(encoding="utf-8")
    before, _, after = text.partition("umount -l old\n")
    for program in ("shutdown", "poweroff", "reboot", "halt", "systemctl"):
        assert program in after
        assert f"rm -f $folder/{program}" not in before
    assert after.index('rm -f "$folder/$program"') < after.index("exec env -i")


class Ec2:
    """An EC2 that notes what it is asked for."""

    def __init__(self, behaviour: str) -> None:
        self.behaviour = behaviour
        self.asked: list[str] = []

    def describe_instance_attribute(self, **_asked: Any) -> dict[str, Any]:
        return {"InstanceInitiatedShutdownBehavior": {"Value": self.behaviour}}

    def stop_instances(self, **asked: Any) -> None:
        self.asked.append(f"stop {asked['InstanceIds']}")

    def terminate_instances(self, **asked: Any) -> None:
        self.asked.append(f"terminate {asked['InstanceIds']}")


@pytest.mark.parametrize("behaviour", ["stop", "terminate"])
def test_the_hypervisor_stops_or_terminates_what_has_powered_itself_off(
    behaviour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_moto: Any = types.ModuleType("offline_cloud.fake_ec2")
    regions: list[str] = []
    ec2 = Ec2(behaviour)

    def client(_service: str, region: str) -> Ec2:
        regions.append(region)
        return ec2

    without_moto.client = client
    monkeypatch.setitem(sys.modules, "offline_cloud.fake_ec2", without_moto)
    monkeypatch.delitem(sys.modules, "offline_cloud.fleet", raising=False)
    from offline_cloud.fleet import POWERED_OFF, Fleet

    fleet: Any = Fleet(tmp_path, tmp_path)
    for name in ("i-off", "i-crashed", "i-runs"):
        fleet.records[name] = SimpleNamespace(id=name, region="us-east-1")
        fleet._running[name] = SimpleNamespace(poll=lambda ended=name != "i-runs": ended or None)
        (tmp_path / "machines" / name / "disk" / "var" / "lib").mkdir(parents=True)
    (tmp_path / "machines" / "i-off" / "disk" / POWERED_OFF).touch()
    fleet._end_powered_off()
    assert ec2.asked == [f"{behaviour} ['i-off']"] and regions == ["us-east-1"]
    fleet._end_powered_off()
    assert len(ec2.asked) == 1, "it ends once"
    monkeypatch.delitem(sys.modules, "offline_cloud.fleet")
