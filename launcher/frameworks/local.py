"""Run a launch on this machine: the one file here that writes files and starts processes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from ...catalog.errors import UsageError
from ...catalog.files import write_atomically
from .types import FrameworkLaunch, Program, Way
from .words import Fact, fill

LOOPBACK = "127.0.0.1"
PASSED_ON = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
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
    return _Child(grace_s).run(argv, cwd=here, environment={**base, **variables})


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


class _Child:
    """A job in a process group of its own: signals go on to it, and none of it outlives us."""

    def __init__(self, grace_s: float) -> None:
        self._kill = threading.Timer(grace_s, self._kill_all)
        self._kill.daemon = True
        self._process: subprocess.Popen[bytes] | None = None
        self._signals: list[int] = []

    def run(self, argv: list[str], *, cwd: Path, environment: dict[str, str]) -> int:
        """Start a job, wait for it, and return its code as a shell has it."""
        try:
            with self._handling():
                self._process = _start(argv, cwd, environment)
                for number in tuple(self._signals):
                    _signal_group(self._process.pid, number)
                code = self._process.wait()
        finally:
            self._kill.cancel()
            self._kill_all()
        if self._signals:
            return 128 + self._signals[0]
        return code if code >= 0 else 128 - code

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        if not self._signals:
            self._kill.start()
        self._signals.append(number)
        if self._process is not None:
            _signal_group(self._process.pid, number)

    @contextlib.contextmanager
    def _handling(self) -> Iterator[None]:
        """Pass signals on for a while; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._pass_on) for number in PASSED_ON}
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)

    def _kill_all(self) -> None:
        """Kill what is left of the job: its group, and what left the group (torchrun's workers)."""
        if self._process is None:
            return
        # Once it has ended, its number may be another's.
        left = _descendants(self._process.pid) if self._process.returncode is None else []
        _signal_group(self._process.pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _start(argv: list[str], cwd: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(argv, cwd=cwd, env=environment, start_new_session=True)
    except OSError as error:
        raise UsageError(
            f"{argv[0]} does not start: {error.strerror}.", fix="name a program that can be run."
        ) from None


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _descendants(pid: int) -> list[int]:
    """Return the processes below one, where /proc tells."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in brackets, may hold anything; the parent is the second field after it.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
