"""The process inside a cloud's namespaces: python -m offline_cloud.server FOLDER IMAGE [VISIBLE…].

FOLDER is the cloud's state, IMAGE what machines boot from. VISIBLE folders below /tmp stay as they
are; the rest of /tmp is the cloud's own, since SkyPilot keeps sockets and locks there.
"""

import datetime
import multiprocessing.connection
import os
import pwd
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from offline_cloud.fake_ec2 import client, seed_account, serve_aws
from offline_cloud.fleet import Fleet
from offline_cloud.metadata import serve_metadata
from offline_cloud.network import answer_probes, make_network


class Server:
    """Answers what cloud.py asks; every public method is a question."""

    def __init__(self, folder: Path, fleet: Fleet) -> None:
        self._folder = folder
        self._fleet = fleet
        self.warned: dict[str, datetime.datetime] = {}
        """When machines were given notice, by id."""

    def instances(self) -> list[dict[str, Any]]:
        """Return every machine there ever was."""
        self._fleet.sync()
        return [vars(record) for record in self._fleet.records.values()]

    def terminate(self, names: list[str]) -> None:
        """End machines as the cloud would: SkyPilot is not told."""
        for record in list(self._fleet.records.values()):
            if record.id in names:
                client("ec2", record.region).terminate_instances(InstanceIds=[record.id])

    def crash(self, names: list[str]) -> None:
        """Let machines die that the cloud goes on to list and to bill as running."""
        for name in names:
            self._fleet.crash(name)

    def reboot(self, names: list[str]) -> None:
        """Start machines again, as after a kernel that panics."""
        for name in names:
            self._fleet.reboot(name)

    def warn(self, names: list[str]) -> None:
        """Give notice that machines will be taken away, as EC2's metadata tells them."""
        self.warned.update(dict.fromkeys(names, datetime.datetime.now(datetime.UTC)))


def main(folder: Path, image: Path, visible: list[Path]) -> None:
    """Start everything, then answer until killed."""
    _hide_the_machine(folder, visible)
    make_network()
    answer_probes(folder / "probe.pem")
    fleet = Fleet(folder, image)
    serve_aws(folder / "failures.json", fleet.sync)
    seed_account()
    fleet.sync()
    server = Server(folder, fleet)
    serve_metadata(fleet.machine_at, server.warned)
    # A socket in the file system is reached from outside this network.
    with multiprocessing.connection.Listener(str(folder / "control")) as listener:
        while True:
            with listener.accept() as asked:
                _answer(server, asked)


def _answer(server: Server, asked: Any) -> None:
    try:
        question, *arguments = asked.recv()
        asked.send((True, getattr(server, question)(*arguments)))
    except EOFError:
        pass
    except Exception:
        asked.send((False, traceback.format_exc()))


def _hide_the_machine(folder: Path, visible: list[Path]) -> None:
    """Let nothing that is written to the real home or to /tmp leave these namespaces."""
    _mount("--make-rprivate", "/")
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for name in ("home-upper", "home-work", "tmp", "outer-tmp"):
        (folder / name).mkdir()
    layers = f"upperdir={folder / 'home-upper'},workdir={folder / 'home-work'}"
    _mount("-t", "overlay", "overlay", "-o", f"lowerdir={home},{layers}", str(home))
    # ssh reads the home of the password file, whatever HOME says, and there SkyPilot's keys.
    for name in (".ssh", ".sky"):
        (home / name).mkdir(exist_ok=True)
        _mount("--bind", str(folder / "home" / name), str(home / name))
    (folder / "tmp").chmod(0o1777)
    _mount("--rbind", "/tmp", str(folder / "outer-tmp"))
    _mount("--bind", str(folder / "tmp"), "/tmp")
    for path in visible:
        if path.is_relative_to("/tmp"):
            path.mkdir(parents=True, exist_ok=True)
            _mount("--bind", str(folder / "outer-tmp" / path.relative_to("/tmp")), str(path))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(word) for word in sys.argv[3:]])
