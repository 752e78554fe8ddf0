"""Run a launch on this machine: the one file here that writes files and starts processes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from ...catalog.errors import UsageError
from ...catalog.files import write_atomically
from ..process_group import NotStartedError, run_child
from .types import FrameworkLaunch, Program, Way
from .words import Fact, fill

LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 30_000)
GRACE_S = 45.0
"""How long a stopped job may take to save and leave: torchrun itself gives its workers 30 s."""


def run(
    launch: FrameworkLaunch,
    *,
    folder: Path,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    grace_s: float = GRACE_S,
) -> int:
    """Run a launch of one node here, wait for it, and return its exit code.

    The output of the job goes where ours goes. SIGINT, SIGTERM and SIGHUP are passed on to the
    job's whole process group; what is left of it after `grace_s` seconds is killed: nothing stays.

    Args:
        launch: What to run; made for one node.
        folder: Where the framework's config files are written, whole or not at all; it is made.
        cwd: Where the command runs, and where its script is looked for; here where it is None.
        environment: Variables to start from; this process's own where it is None.
        grace_s: Seconds from the first signal to the kill.

    Returns:
        The code that the framework's program ended with; 128 + the signal's number where a signal
        ended it or was passed on (130 after Ctrl-C).

    Raises:
        UsageError: the launch is for many nodes, its program is not installed, its script does not
            exist, or the folder cannot be written.
    """
    here = cwd or Path.cwd()
    way = _usable(launch, here)
    _refuse_missing_script(launch, here)
    values = values_here(launch, folder.absolute(), port=free_port())
    _write_files(launch, folder, values)
    variables = {name: fill(word, values) for name, word in launch.environment.items()}
    argv = argv_here(way, values)
    base = os.environ if environment is None else environment
    try:
        ended = run_child(argv, environment={**base, **variables}, cwd=here, grace_s=grace_s)
    except NotStartedError as error:
        raise UsageError(error.message, fix="name a program that can be run.") from None
    if ended.signals:
        return 128 + ended.signals[0]
    return ended.code if ended.code >= 0 else 128 - ended.code


def values_here(launch: FrameworkLaunch, folder: Path, *, port: int) -> dict[Fact, str]:
    """Return every fact as it is on this one machine."""
    per_node = launch.job.per_node
    return {
        Fact.MAIN_ADDRESS: LOOPBACK,
        Fact.PORT: str(port),
        Fact.NODE_RANK: "0",
        Fact.CONFIG: str(folder),
        Fact.HOST_SLOTS: f"localhost:{per_node}",
        Fact.HOSTFILE: f"localhost slots={per_node}",
        Fact.WORKERS: f'"{LOOPBACK}:{port}"',
        Fact.PYTHON: sys.executable,
    }


def argv_here(way: Way, values: Mapping[Fact, str]) -> list[str]:
    """Return the words that start a job here, with this very Python where it is Python's."""
    program = way.program
    start = list(program.command)
    if program.module is not None:
        start = [sys.executable, *(["-m", program.module] if program.module else [])]
    return [*start, *(fill(word, values) for word in way.arguments)]


def is_installed(program: Program, cwd: Path) -> bool:
    """Whether a program can be started here: its module in this Python, or its command on PATH."""
    if program.module is None:
        name = program.command[0]
        return shutil.which(cwd / name if "/" in name else name) is not None
    return not program.package or find_spec(program.package) is not None


def _usable(launch: FrameworkLaunch, cwd: Path) -> Way:
    if launch.job.nodes != 1:
        raise UsageError(
            f"The launch is for {launch.job.nodes} nodes, and this is one machine.",
            fix="take a plan of one node, or run the node script on every node.",
        )
    for way in launch.ways:
        if is_installed(way.program, cwd):
            return way
    program = launch.ways[0].program
    name = program.package or program.command[0]
    raise UsageError(
        f"{name} is not installed in {sys.prefix}."
        if program.package
        else f"There is no program {name!r} on PATH.",
        fix=f"pip install {program.package}"
        if program.package
        else "install it, or give its path; a Python script ends in .py.",
    )


def _refuse_missing_script(launch: FrameworkLaunch, cwd: Path) -> None:
    target = launch.job.target
    if target.kind == "script" and not (cwd / target.name).is_file():
        raise UsageError(
            f"There is no script {target.name!r} in {cwd}.",
            fix="run it from the folder where it is, or give its path.",
        )


def free_port() -> int:
    """Return a port that nothing listens on, below those that the system gives out by itself.

    One that it gives out could be the near end of somebody's connection by the time it is used.
    """
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
    raise UsageError("Every port of this machine is taken.", fix="end what holds them.")


def _write_files(launch: FrameworkLaunch, folder: Path, values: Mapping[Fact, str]) -> None:
    if not launch.files:
        return
    try:
        for name, text in launch.files.items():
            write_atomically(folder / name, fill(text, values), mode=0o600)
    except OSError as error:
        raise UsageError(
            f"The files of the launch cannot be written to {folder}: {error.strerror}.",
            fix="give another folder.",
        ) from None
