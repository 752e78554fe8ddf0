"""Makes moto's instances real, one namespace each, and keeps account of when each ran."""

import base64
import binascii
import itertools
import json
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from offline_cloud.fake_ec2 import client
from offline_cloud.network import BRIDGE, ENDPOINT, GATEWAY, PREFIX, PROBED, REGION_NETWORKS, ip

BOOT = Path(__file__).with_name("machine.sh")
NAMESPACE_WAIT_S = 10.0
POWERED_OFF = "var/lib/powered-off"
"""What a machine's shutdown leaves on its disk: shutdown.sh."""


@dataclass(kw_only=True)
class Record:
    """What the account knows of a machine; written as JSON, read as cloud.Machine."""

    id: str
    type: str
    region: str
    zone: str
    market: str
    address: str
    state: str = "pending"
    tags: dict[str, str] = field(default_factory=dict)
    launched_s: float
    ended_s: float | None = None
    """When it was terminated."""
    ran: list[tuple[float, float | None]] = field(default_factory=list)
    """From when to when it ran; the last is open while it runs."""


class Fleet:
    """The machines of every region."""

    def __init__(self, folder: Path, image: Path) -> None:
        """Hold machines below `folder`/machines and their account in `folder`/machines.json."""
        self._folder = folder
        self._image = image
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._cables = itertools.count()
        self._powered_off: set[str] = set()
        """Those that run no more by their own shutdown, until they are started again."""
        self.records: dict[str, Record] = {}

    def sync(self) -> None:
        """Boot and end machines as moto says, and write the account."""
        self._end_powered_off()
        with self._lock:
            for region in REGION_NETWORKS:
                ec2 = client("ec2", region)
                for reservation in ec2.describe_instances()["Reservations"]:
                    for instance in reservation["Instances"]:
                        self._update(ec2, region, instance)
            text = json.dumps([vars(record) for record in self.records.values()], indent=1)
            path = self._folder / "machines.json"
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").replace(path)

    def _end_powered_off(self) -> None:
        """Stop or terminate, as EC2 does, the machines whose own shutdown has ended them."""
        with self._lock:
            found = [one for one in self.records.values() if self._is_powered_off(one)]
            self._powered_off.update(one.id for one in found)
        # Without the lock: what changes an instance is followed by another sync.
        for record in found:
            ec2 = client("ec2", record.region)
            wanted = ec2.describe_instance_attribute(
                InstanceId=record.id, Attribute="instanceInitiatedShutdownBehavior"
            )
            if wanted["InstanceInitiatedShutdownBehavior"].get("Value") == "terminate":
                ec2.terminate_instances(InstanceIds=[record.id])
            else:
                ec2.stop_instances(InstanceIds=[record.id])

    def _is_powered_off(self, record: Record) -> bool:
        process = self._running.get(record.id)
        if process is None or process.poll() is None or record.id in self._powered_off:
            return False
        return (self._folder / "machines" / record.id / "disk" / POWERED_OFF).exists()

    def machine_at(self, address: str) -> tuple[str, str] | None:
        """Return the id and the market of the machine that runs at an address."""
        for record in self.records.values():
            if record.address == address and record.id in self._running:
                return record.id, record.market
        return None

    def crash(self, name: str) -> None:
        """End all that runs on a machine, as a kernel that panics; it stays in the account."""
        with self._lock:
            self._running[name].kill()
            self._running[name].wait()

    def reboot(self, name: str) -> None:
        """Start a machine again with its disk and address; it is billed all the while."""
        with self._lock:
            self._end(name)
            record = self.records[name]
            self._boot(client("ec2", record.region), record)

    def _update(self, ec2: Any, region: str, instance: dict[str, Any]) -> None:
        now = time.time()
        name = instance["InstanceId"]
        if name not in self.records:
            self.records[name] = Record(
                id=name,
                type=instance["InstanceType"],
                region=region,
                zone=instance["Placement"]["AvailabilityZone"],
                market=instance.get("InstanceLifecycle", "on-demand"),
                address=instance["PrivateIpAddress"],
                launched_s=now,
            )
        record = self.records[name]
        if record.ended_s is not None:
            return
        record.state = instance["State"]["Name"]
        record.tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
        runs = record.state in ("pending", "running")
        if runs and name not in self._running:
            record.ran.append((now, None))
            self._boot(ec2, record)
        elif not runs and name in self._running:
            self._end(name)
            record.ran[-1] = (record.ran[-1][0], now)
        if record.state == "terminated":
            record.ended_s = now
            shutil.rmtree(self._folder / "machines" / name, ignore_errors=True)

    def _boot(self, ec2: Any, record: Record) -> None:
        self._powered_off.discard(record.id)
        folder = self._folder / "machines" / record.id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "authorized_keys").write_text(_authorized_keys(ec2, record.id))
        name = "ip-" + record.address.replace(".", "-")
        own = ["--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        where = [str(folder), str(self._image), str(self._folder / "shared")]
        address = f"{record.address}/{PREFIX}"
        probes = [str(self._folder / "probe.pem"), GATEWAY, *PROBED]
        consoles = self._folder / "consoles"
        consoles.mkdir(exist_ok=True)
        with (consoles / f"{record.id}.log").open("ab") as console:
            process = subprocess.Popen(
                ["unshare", *own, str(BOOT), *where, name, address, ENDPOINT, *probes],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        self._running[record.id] = process
        _plug_in(process, f"cable{next(self._cables)}")

    def _end(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()


def _plug_in(process: subprocess.Popen[bytes], cable: str) -> None:
    """Give a machine's namespace its eth0, at the other end of which is the bridge."""
    own = Path("/proc/self/ns/net").readlink()
    until = time.monotonic() + NAMESPACE_WAIT_S
    while Path(f"/proc/{process.pid}/ns/net").readlink() == own:
        if time.monotonic() > until or process.poll() is not None:
            raise RuntimeError(f"a machine got no namespace of its own: {process.args}")
        time.sleep(0.01)
    peer = ["peer", "name", "eth0", "netns", str(process.pid)]
    ip("link", "add", cable, "type", "veth", *peer)
    ip("link", "set", cable, "master", BRIDGE, "up")


def _authorized_keys(ec2: Any, name: str) -> str:
    """Return the keys that cloud-init would let in."""
    held = ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")
    text: str = held.get("UserData", {}).get("Value", "")
    # boto encodes what SkyPilot has encoded already.
    while text and "ssh_authorized_keys" not in text:
        try:
            text = base64.b64decode(text, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise RuntimeError(f"{name} has user data without keys: {text[:80]!r}") from error
    document = _first_part(text)
    users = (yaml.safe_load(document) or {}).get("users", []) if document else []
    return "".join(f"{key}\n" for user in users for key in user.get("ssh_authorized_keys", []))


def _first_part(text: str) -> str:
    """Return the cloud-config of user data, which may come in several parts."""
    at = text.find("users:")
    end = text.find("\n--", at)
    return text[at:end] if end >= 0 else text[at:]
