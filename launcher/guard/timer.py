"""The timer that ends a machine when nothing else does: `gpuplan_guard timer guard.json SHELL`.

Set-up starts it as its first line, on every node. It is a process of its own session, with no
parent: neither SkyPilot, nor the job, nor the guard can end it or be needed by it. When its time is
over it asks the guard to stop (which lets the run write a checkpoint), waits for that, and powers
the machine off, where that ends what the machine costs. It stops a set-up that hangs, too.

It counts by the monotonic clock, so that a clock that is set changes nothing, and writes what it
has counted below the home: where the machine has cron, it goes on after a reboot.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .decisions.limits import END, STOP_SETUP, Countdown, Limits, limits
from .decisions.spending import came_up_s
from .decisions.verdicts import STOPPED
from .main import at_place, place, say
from .node import stuck
from .node.patience import OneAtATime
from .node.processes import descendants, has_variable, is_alive, kill, run_within, started_with
from .node.readings import TIMER_STATE, boot_s
from .node.stuck import FOLDER
from .orders import Orders, OrdersError
from .watch import stopwatch

LOG, STATE = "log", TIMER_STATE
AFTER_REBOOT = "reboot"
"""Instead of the shell's number: go on with what was counted before."""
SUBCOMMAND = "timer"
NO_ORDERS = 2
STATE_EVERY_S = 60.0
KILL_AFTER_S = 5.0
"""From SIGTERM to SIGKILL of a set-up that hangs."""
LAST_S = 60.0
"""Beyond the grace of a checkpoint, for the guard to write how the run ended."""
COMMAND_WITHIN_S = 30.0
LOOK_WITHIN_S = 10.0
DISK_WITHIN_S = 5.0
"""How long the disk may take for a line: one that hangs stops no clock."""
RANK_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK")
"""Given to the ranks that horovodrun or mpirun starts on every node, over SSH and from the first
one, where the one guard of such a run is."""
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where `shutdown` is: a user's own PATH need not hold it, nor sudo have one of its own."""


def main(arguments: Sequence[str]) -> int:
    """Start the timer of this machine in place of an older one; return an exit code."""
    if len(arguments) != 2:
        say("usage: gpuplan_guard timer guard.json SHELL-PID|reboot")
        return NO_ORDERS
    path = Path(arguments[0])
    try:
        orders = Orders.from_json(path.read_text(encoding="utf-8"))
    except (OSError, OrdersError) as error:
        say(f"{path} does not say when this machine must end, so no timer was started: {error}.")
        return NO_ORDERS
    if orders.timer is None:
        return 0
    again = arguments[1] == AFTER_REBOOT
    shell = None if again else int(arguments[1])
    home = Path(os.path.expanduser("~")) / FOLDER
    home.mkdir(exist_ok=True)
    stuck.forget()
    for pid in started_with(SUBCOMMAND, str(path)):
        if pid != os.getpid():
            kill(pid, signal.SIGKILL)
    if _detach(home / LOG):
        return 0
    Timer(orders, path, home, shell).run(_read_state(home) if again else None)
    return 0


class Timer:
    """The timer of one machine."""

    def __init__(self, orders: Orders, path: Path, home: Path, shell: int | None) -> None:
        """Take note of what is to be watched.

        Args:
            orders: with those of a timer.
            path: of the orders; a guard is known by it.
            home: the folder of what it leaves.
            shell: that sets up; None after a reboot.
        """
        assert orders.timer is not None
        self._orders = orders
        self._wanted = orders.timer
        self._path = path
        self._home = home
        self._shell = shell
        self._shell_born = None if shell is None else is_alive(shell)
        self._wrote_s = -STATE_EVERY_S
        self._writing, self._telling = OneAtATime(), OneAtATime()
        self._looking, self._is_stuck = OneAtATime(), False
        self._finding = OneAtATime()
        self._found: list[int] = []
        self._finding_ranks, self._ranks = OneAtATime(), False

    def run(self, before: dict[str, Any] | None) -> None:
        """Count until the machine is ended.

        Args:
            before: what the timer before a reboot left; None begins.
        """
        since_s = stopwatch()
        cloud, held, used_s = self._begin() if before is None else self._resume(before)
        # After a reboot only where cron was told to, which is only where that ends the machine.
        may_power_off = self._shell is None or cloud in self._wanted.power_off_on
        powers_off = bool(self._wanted.power_off) and may_power_off
        countdown = Countdown(held, used_s=used_s)
        if powers_off:
            _at_reboot(self._reboot_line())
        while True:
            now_s = used_s + since_s()
            self._write_state(cloud, held, now_s)
            action = countdown.tick(
                now_s,
                setting_up=self._sets_up(),
                guarded=self._is_run_on(),
                stuck=self._sees_stuck(),
            )
            if action == STOP_SETUP:
                self._stop_setup(countdown.why, held.setup_why, powers_off)
            elif action == END:
                break
            time.sleep(self._wanted.poll_s)
        self._end(countdown.why, powers_off)

    def _begin(self) -> tuple[str, Limits, float]:
        """Return the cloud, the limits, and how long the machine has cost."""
        now_s = time.time()
        # Never more than the uptime, however the clock was set; where what was counted before a
        # reboot is lost, since the request, which is at most what the machine has cost.
        up_s = boot_s() if self._shell is not None else None
        asked_s = self._orders.requested_at_s
        if asked_s > now_s and self._shell is not None:
            # Of a clock that is fast.
            asked_s = came_up_s(up_s, now_s) or now_s
        began_s = min(now_s, max(up_s or 0.0, asked_s))
        used_s = now_s - began_s
        orders = at_place(self._orders)
        assert orders.timer is not None
        held = limits(orders, orders.timer, began_s=began_s, used_s=used_s)
        return place()[0].lower(), held, used_s

    def _resume(self, before: dict[str, Any]) -> tuple[str, Limits, float]:
        return str(before["cloud"]), Limits(**before["limits"]), float(before["used_s"])

    def _sets_up(self) -> bool:
        # A number is given again once its process is gone: the time of its start tells.
        return self._shell is not None and self._shell_born == is_alive(self._shell) is not None

    def _sees_stuck(self) -> bool:
        def look() -> None:
            self._is_stuck = stuck.is_noted()

        self._looking.within(DISK_WITHIN_S, look)
        return self._is_stuck

    def _guards(self) -> list[int]:
        def find() -> None:
            self._found = started_with(str(self._path), "--")

        # The command of a process that hangs in the kernel may be as long in coming.
        self._finding.within(LOOK_WITHIN_S, find)
        return self._found

    def _is_run_on(self) -> bool:
        """Return whether a guard runs here, or ranks that the first node's guard has started."""
        return bool(self._guards()) or self._has_ranks()

    def _has_ranks(self) -> bool:
        def find() -> None:
            self._ranks = has_variable(*RANK_VARIABLES)

        self._finding_ranks.within(LOOK_WITHIN_S, find)
        return self._ranks

    def _stop_setup(self, text: str, why: str, powers_off: bool) -> None:
        shell = self._shell
        assert shell is not None
        after = f"this machine ends in {self._wanted.after_setup_s / 60:.0f} minutes"
        if not powers_off:
            after = "this machine cannot end itself: gpuplan down, or the provider's console"
        said = Path(f"/proc/{shell}/fd/1")
        self._tell(f"{text} and was stopped; {after}.", said)
        # Read from the job's log as the guard's own word: a limit ended this run, not a fault.
        verdict = {"why": why, "text": f"{text} and was stopped", "exit_code": STOPPED}
        word = f"gpuplan-guard: {json.dumps({'verdict': verdict})}"
        self._telling.within(DISK_WITHIN_S, lambda: _append(said, word))
        left = [*descendants(shell), shell]
        for pid in left[:-1]:
            kill(pid, signal.SIGTERM)
        until_s = time.monotonic() + KILL_AFTER_S
        while self._sets_up() and time.monotonic() < until_s:
            time.sleep(min(0.2, self._wanted.poll_s))
        for pid in {*left, *(descendants(shell) if self._sets_up() else ())}:
            kill(pid, signal.SIGKILL)

    def _end(self, why: str, powers_off: bool) -> None:
        """Let the run write a checkpoint, end it, and power the machine off."""
        self._tell(f"this machine ends: {why}.")
        for pid in self._guards():
            kill(pid, signal.SIGTERM)
            # One that was stopped (SIGSTOP) would pass nothing on; others do not notice.
            for each in (pid, *descendants(pid)):
                kill(each, signal.SIGCONT)
        until_s = time.monotonic() + self._orders.grace_s + LAST_S
        while self._guards() and time.monotonic() < until_s:
            time.sleep(min(1.0, self._wanted.poll_s))
        for guard in self._guards():
            for pid in (*descendants(guard), guard):
                kill(pid, signal.SIGKILL)
        if not powers_off:
            self._tell("it cannot power itself off: gpuplan down, or the provider's console.")
            return
        # Somebody who starts it again, for its disk, is not to be thrown out.
        _at_reboot(None)
        while True:
            self._tell(_run(self._wanted.power_off))
            time.sleep(self._wanted.retry_s)

    def _reboot_line(self) -> str:
        folder = Path(sys.argv[0]).resolve()
        words = [sys.executable, "-E", "-S", folder, SUBCOMMAND, self._path, AFTER_REBOOT]
        return "@reboot " + " ".join(f"'{word}'" for word in words)

    def _write_state(self, cloud: str, held: Limits, used_s: float) -> None:
        if used_s - self._wrote_s < STATE_EVERY_S:
            return
        self._wrote_s = used_s
        text = json.dumps({"cloud": cloud, "limits": asdict(held), "used_s": used_s})
        self._writing.within(DISK_WITHIN_S, lambda: self._replace_state(text))

    def _replace_state(self, text: str) -> None:
        try:
            with (self._home / f"{STATE}.new").open("w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                # A machine that loses its power keeps the name of a file, and not its content.
                os.fsync(stream.fileno())
            os.replace(self._home / f"{STATE}.new", self._home / STATE)
        except OSError as error:
            self._tell(f"the timer cannot write what it counts: {error}")

    def _tell(self, text: str, *others: Path) -> None:
        """Write a line to the log, and to where the user can read it."""

        def write() -> None:
            for path in (self._home / LOG, *others):
                _append(path, f"gpuplan: {text}")

        self._telling.within(DISK_WITHIN_S, write)


def _append(path: Path, line: str) -> None:
    """Add a line to a file or a pipe; where it cannot be, as on a full disk, do without."""
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")
    except OSError:
        return


def _detach(log: Path) -> bool:
    """Return True where it was called, and False in a process without parent, session or files."""
    if os.fork():
        os.wait()
        return True
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, 256)
    os.open(os.devnull, os.O_RDONLY)
    said = os.open(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(said, 2)
    return False


def _read_state(home: Path) -> dict[str, Any] | None:
    """Return what the timer before a reboot left; None where that cannot be read."""
    try:
        values = json.loads((home / STATE).read_text(encoding="utf-8"))
        Limits(**values["limits"])
        return values
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _at_reboot(line: str | None) -> None:
    """Let cron start the timer after a reboot, or no more; without cron nothing happens."""
    mark = f"# {FOLDER}"
    try:
        code, said = run_within(["crontab", "-l"], COMMAND_WITHIN_S)
        # Where there is none yet, it says so and fails.
        listed = said.decode() if code == 0 else ""
        kept = [one for one in listed.splitlines() if not one.endswith(mark)]
        wanted = [*kept, *([] if line is None else [f"{line} {mark}"])]
        text = "".join(f"{one}\n" for one in wanted)
        if text != listed:
            run_within(["crontab", "-"], COMMAND_WITHIN_S, given=text.encode())
    except (OSError, ValueError, subprocess.SubprocessError):
        return


def _run(words: Sequence[str]) -> str:
    """Run a command and return what is to be said of it."""
    try:
        path = f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}"
        variables = {**os.environ, "PATH": path}
        code, written = run_within(words, COMMAND_WITHIN_S, variables=variables, errors=True)
        said = written.decode("utf-8", "replace").strip()
        return f"{' '.join(words)} ended with {code}{said and ': ' + said}"
    except (OSError, subprocess.SubprocessError) as error:
        return f"{' '.join(words)} could not be run: {error}"
