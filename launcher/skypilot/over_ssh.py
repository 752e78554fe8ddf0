"""What is done on a first node over SSH: a command beside its job, and its results brought here.

SkyPilot writes how `ssh CLUSTER` reaches the machine (`~/.sky/ssh`), and nothing there about a
connection that goes away.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..lifecycle.engine import EngineError, LostMachineError

ALIVE = (
    "ssh",
    *("-o", "ConnectTimeout=30"),
    *("-o", "ServerAliveInterval=15"),
    *("-o", "ServerAliveCountMax=4"),
)
"""Without these ssh waits for ever where a network goes away in silence (ssh_config(5))."""
QUIET = (*ALIVE, "-o", "BatchMode=yes")
SSH_FAILED = 255
BROKE_OFF = (10, 12, 30, 35, SSH_FAILED)
"""How rsync says that it lost the other side, and ssh: EXIT VALUES of rsync(1) and ssh(1)."""
PARTIAL, VANISHED = 23, 24
PARTS = ".rsync-partial"
"""Where rsync leaves what broke off: in its own place half a file looks like a whole one, and would
replace the whole one that another command has brought meanwhile."""
LASTING = ("Permission denied", "No space left")
"""In what is said of an end that another try does not change."""
LONGEST_SAID = 300


def tell(cluster: str, command: str) -> None:
    """Run a shell command on the first node.

    Raises:
        LostMachineError: the connection broke off.
        EngineError: it did not end well.
    """
    done = _run([*QUIET, cluster, command])
    if done.returncode != 0:
        raise _kind(done)(
            f"{cluster} did not do as it was told: {_said(done)}",
            fix=f"look whether `ssh {cluster}` works, then try again.",
        )


def bring(cluster: str, source: str, target: Path) -> bool:
    """Bring what is in a folder of the first node into a local one; return whether there is one.

    What a try before has brought is not brought again.

    Raises:
        LostMachineError: the connection broke off.
        EngineError: it could not be brought.
    """
    source = source.rstrip("/")
    line = ["rsync", "-a", f"--partial-dir={PARTS}", "-e", shlex.join(ALIVE)]
    done = _run([*line, f"{cluster}:{source}/", f"{target}/"])
    if done.returncode in (0, VANISHED):
        return True
    if done.returncode == PARTIAL and _is_missing(cluster, source):
        return False
    raise _kind(done)(
        f"The results could not be brought from {cluster}: {_said(done)}",
        fix="the machines are still there: try again, or take them with"
        f" `rsync -a {cluster}:{source}/ FOLDER/`.",
    )


def _is_missing(cluster: str, folder: str) -> bool:
    """Return whether a folder is known not to be on the first node."""
    return _run([*QUIET, cluster, f"test ! -e {shlex.quote(folder)}"]).returncode == 0


def _kind(done: subprocess.CompletedProcess[str]) -> type[EngineError]:
    is_lasting = any(one in done.stderr for one in LASTING)
    return LostMachineError if done.returncode in BROKE_OFF and not is_lasting else EngineError


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip()[-LONGEST_SAID:]


def _run(line: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            line, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise EngineError(
            f"{line[0]} is not installed here, and it is what reaches the machines.",
            fix=f"install {line[0]} (on Debian: apt-get install rsync openssh-client), then try"
            " again.",
        ) from None
