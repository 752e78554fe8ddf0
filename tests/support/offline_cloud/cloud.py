"""Starts, uses and stops a cloud. A cloud is its state folder and one process tree.

    CACHE/clouds/NAME/
        home/            HOME of what is run inside
        bin/             the gpuplan that is run inside
        shared/          every machine's /shared: the shared file system of a cluster of one's own
        failures.json    rules for refused machines: fake_ec2.serve_aws
        machines.json    every machine there ever was
        machines/        their disks
        consoles/        what they said
        server.log       what the process inside said

All that is inside, SkyPilot's API server and the machines too, ends with the cloud's first process.
"""

import json
import multiprocessing.connection
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offline_cloud.home import amis, make_command, make_home
from offline_cloud.image import CACHE, image
from offline_cloud.network import ENDPOINT, make_certificate
from offline_cloud.processes import Inside, born, children, read

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
SUPPORT = Path(__file__).parents[1]
START_WAIT_S = 60.0
NEW_S = 600.0
CLUSTER_TAG = "skypilot-cluster-name"
ENTER = 'cd "$1" && shift && exec "$@"'
"""A process that enters a mount namespace stands at its root."""
FIRST = '"$@" & wait $!'
"""The first process of a namespace must bury others' children too, which a shell does."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An instance, and when it ran."""

    id: str
    type: str
    region: str
    zone: str
    market: str
    """`on-demand` or `spot`."""
    address: str
    state: str
    tags: Mapping[str, str]
    launched_s: float
    ended_s: float | None
    """When it was terminated; None while it was not."""
    ran: tuple[tuple[float, float | None], ...]
    """From when to when it ran; the last is open while it runs. All times as of time.time()."""

    @property
    def runs(self) -> bool:
        """Return whether it costs money now."""
        return self.state in ("pending", "running")

    def billed_s(self, now: float) -> float:
        """Return how long it has run by now, seconds."""
        return sum((now if end is None else end) - start for start, end in self.ran)


class Cloud:
    """A cloud that runs."""

    def __init__(self, folder: Path) -> None:
        """Take the cloud of a state folder, which must run."""
        self.folder = folder
        self.home = folder / "home"
        self.shared = folder / "shared"
        if _alive(folder) is None:
            raise RuntimeError(f"no cloud runs in {folder}: see {folder / 'server.log'}")
        self._first = int((folder / "first").read_text())

    @classmethod
    def start(
        cls,
        name: str,
        *,
        visible: Iterable[Path] = (),
        with_parent: bool = False,
        with_controller: bool = False,
    ) -> "Cloud":
        """Start a cloud of an empty account.

        Args:
            name: of its state folder; one that ran before under this name is ended.
            visible: folders below /tmp that shall be the same inside; the rest of /tmp is not.
            with_parent: whether it ends with the process that starts it.
            with_controller: whether managed jobs are watched from a machine, as by default.
        """
        folder = CACHE / "clouds" / name
        _remove_dead()
        stop(folder)
        folder.mkdir(parents=True)
        booted = image(ENDPOINT)
        (folder / "shared").mkdir()
        (folder / "shared").chmod(0o777)
        make_home(folder / "home", with_controller=with_controller)
        make_command(folder)
        (folder / "amis.json").write_text(amis())
        make_certificate(folder)
        _spawn(folder, booted, visible, with_parent)
        until = time.monotonic() + START_WAIT_S
        while not (folder / "control").exists():
            if _alive(folder) is None or time.monotonic() > until:
                said = (folder / "server.log").read_text()
                stop(folder)
                raise RuntimeError(f"the cloud did not start:\n{said}")
            time.sleep(0.05)
        return cls(folder)

    def stop(self) -> None:
        """End everything inside and remove what it left."""
        stop(self.folder)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of a command inside; nothing of the caller's is among them."""
        certificate = str(self.folder / "probe.pem")
        return {
            "HOME": str(self.home),
            "PATH": f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{SYSTEM_PATH}",
            "LANG": "C.UTF-8",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            # One process that watches managed jobs; else there are as many as the memory holds.
            "SKYPILOT_POD_MEMORY_GB_LIMIT": "6",
            "SSL_CERT_FILE": certificate,
            "REQUESTS_CA_BUNDLE": certificate,
            "PIP_NO_INDEX": "1",
            # pip reads this upside down: SkyPilot's wheel is built by what is installed.
            "PIP_NO_BUILD_ISOLATION": "0",
            **more,
        }

    def command(self, words: Iterable[str], cwd: Path) -> list[str]:
        """Return the words that run a command inside; give them `environment()`."""
        enter = ["nsenter", "--target", str(self._first), "--net", "--mount", "--pid"]
        return [*enter, "sh", "-c", ENTER, "inside", str(cwd), *words]

    def run(
        self, *words: str, cwd: Path, timeout_s: float = 300.0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside to its end and return what it wrote."""
        process = subprocess.Popen(
            self.command(words, cwd),
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said, complained = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            # nsenter alone would leave the command, and the pipe to it, behind.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return subprocess.CompletedProcess(words, process.returncode, said, complained)

    def begin(self, *words: str, cwd: Path, log: Path, **variables: str) -> Inside:
        """Begin a command inside, which writes what it says to `log`, and return it."""
        with log.open("wb") as said:
            process = subprocess.Popen(
                self.command(words, cwd),
                env=self.environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Inside(process, log)

    def fail(self, *rules: Mapping[str, str]) -> None:
        """Refuse machines from now on by these rules alone: fake_ec2.serve_aws."""
        path = self.folder / "failures.json"
        path.with_suffix(".new").write_text(json.dumps(rules))
        path.with_suffix(".new").replace(path)

    def instances(self) -> list[Machine]:
        """Return every machine there ever was, in the order of their launch."""
        found = [Machine(**one | {"ran": tuple(one["ran"])}) for one in self._ask("instances")]
        return sorted(found, key=lambda machine: machine.launched_s)

    def of_cluster(self, cluster: str) -> list[Machine]:
        """Return the machines of a cluster, by SkyPilot's name for it."""
        # In the cloud its name has something of the person's added.
        return [one for one in self.instances() if _is_of(one, cluster)]

    def terminate(self, cluster: str) -> list[Machine]:
        """End a cluster's machines as the cloud would, unknown to SkyPilot; return them."""
        ended = [machine for machine in self.of_cluster(cluster) if machine.runs]
        self.terminate_machines(ended)
        return ended

    def terminate_machines(self, machines: Iterable[Machine]) -> None:
        """End these machines as the cloud would, unknown to SkyPilot."""
        self._ask("terminate", [machine.id for machine in machines])

    def crash_machines(self, machines: Iterable[Machine]) -> None:
        """Let these machines die, which the cloud goes on to list and to bill as running."""
        self._ask("crash", [machine.id for machine in machines])

    def reboot_machines(self, machines: Iterable[Machine]) -> None:
        """Start these machines again: their disks stay, and nothing that ran."""
        self._ask("reboot", [machine.id for machine in machines])

    def warn_machines(self, machines: Iterable[Machine]) -> None:
        """Give spot machines notice; to end them is left to the test."""
        self._ask("warn", [one.id for one in machines])

    def _ask(self, question: str, *arguments: object) -> Any:
        with multiprocessing.connection.Client(str(self.folder / "control")) as server:
            server.send((question, *arguments))
            good, answer = server.recv()
        if not good:
            raise RuntimeError(f"the cloud could not answer {question}:\n{answer}")
        return answer


def stop(folder: Path) -> None:
    """End the cloud of a folder, if it runs, and remove the folder, if it is there."""
    process = _alive(folder)
    if process is not None:
        os.kill(process, signal.SIGKILL)
        while _alive(folder) is not None:
            time.sleep(0.02)
    # What ran inside is killed with the first process, and may still be writing.
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
    shutil.rmtree(folder)


def _spawn(folder: Path, booted: Path, visible: Iterable[Path], with_parent: bool) -> None:
    own = ["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    ends = ["setpriv", "--pdeathsig", "KILL"] if with_parent else []
    inside = [sys.executable, "-m", "offline_cloud.server", str(folder), str(booted)]
    # What runs inside comes from this repository, which may itself lie below /tmp.
    shown = map(str, (SUPPORT.parents[1], *visible))
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*ends, "unshare", *own, "sh", "-c", FIRST, "first", *inside, *shown],
            env={
                "PATH": SYSTEM_PATH,
                "PYTHONPATH": str(SUPPORT),
                "MOTO_AMIS_PATH": str(folder / "amis.json"),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    until = time.monotonic() + START_WAIT_S
    while not (first := read(children(process.pid)).strip()):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"no namespaces: {read(folder / 'server.log')}")
        time.sleep(0.01)
    (folder / "first").write_text(first)
    (folder / "process").write_text(f"{process.pid} {born(process.pid)}")


def _alive(folder: Path) -> int | None:
    """Return the id of the process that holds a cloud up; None where it has ended."""
    held = read(folder / "process").split()
    if not held:
        return None
    number = int(held[0])
    return number if born(number) == held[1] else None


def _remove_dead() -> None:
    """Remove what clouds left whose runs were killed."""
    for folder in (CACHE / "clouds").glob("*"):
        # One without a process may be about to get it.
        is_new = time.time() - folder.stat().st_mtime < NEW_S
        if _alive(folder) is None and ((folder / "process").exists() or not is_new):
            stop(folder)


def _is_of(machine: Machine, cluster: str) -> bool:
    name = machine.tags.get(CLUSTER_TAG, "")
    return name == cluster or name.startswith(f"{cluster}-")
