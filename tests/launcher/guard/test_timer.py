"""The timer of a node as a process of its own. Nothing here can power off this machine.

The orders of these tests name their own command, a script that writes a line; `crontab` is one too.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from guards import Node

from gpuplan.launcher.bundle import GUARD, ORDERS_FILE
from gpuplan.launcher.guard.node.processes import is_alive, kill, started_with
from gpuplan.launcher.guard.orders import TimerOrders
from gpuplan.launcher.lifecycle.job.guard_report import word_in_log
from gpuplan.launcher.prepare.task.node_setup import timed_setup

WITHIN_S = 20.0
OLD = sorted((Path.home() / ".pyenv" / "versions").glob("3.8*/bin/python3"))[:1]
HOURS_S = 36_000.0
AWS = json.dumps({"cloud": "AWS", "region": "us-east-1", "zone": "us-east-1a"})
AZURE = json.dumps({"cloud": "Azure", "region": "eastus", "zone": None})
CRONTAB = """#!/bin/sh
if [ "$1" = -l ]; then cat "$HOME/cron" 2>/dev/null; else cat >"$HOME/cron"; fi
"""
SAVES = "trap 'echo saved >{0}; exit 0' TERM; echo up >{1}; while :; do sleep 0.05; done"
"""A run that writes a checkpoint when it is asked to end."""


SET_CLOCK = """#!/bin/sh
''''exec {python} -ES "$0" "$@" # '''
import runpy, sys, time
from pathlib import Path

def now(clock=time.time):
    return clock() + float(Path({clock!r}).read_text())

time.time = now
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A Python for which the clock of this machine is set by a file, seconds. The shell begins it, as
its own path may have a space, and no path after `#!` may."""


class Timed(Node):
    """A node whose power-off writes a line into `off`."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        # Where run scripts look for it.
        (home / "gpuplan-job").symlink_to(self.job)
        self.bin = home / "bin"
        self.bin.mkdir()
        self.off = home / "off"
        self._script("off", f'#!/bin/sh\necho "$@" >>"{self.off}"\n')
        self._script("crontab", CRONTAB)
        self.log = home / "gpuplan-timer" / "log"
        self.path = str(home / "gpuplan-job" / ORDERS_FILE)

    def timer(self, *, orders: dict[str, Any] | None = None, **changes: Any) -> None:
        """Write orders with a timer that polls quickly."""
        held: dict[str, Any] = {
            **{"setup_s": HOURS_S, "unowned_s": HOURS_S, "margin_s": 0.0, "poll_s": 0.1},
            **{"power_off": (str(self.bin / "off"), "now"), "power_off_on": ("aws",)},
        }
        timer = TimerOrders(**{**held, **changes})
        facts = {"grace_s": 5.0, "requested_at_s": time.time(), **(orders or {})}
        self.orders(timer=timer, **facts)

    def environment(self, place: str = AWS) -> dict[str, str]:
        return {
            **{"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home)},
            **{"SKYPILOT_CLUSTER_INFO": place, "GPUPLAN_OUT": str(self.out)},
        }

    def begin(self, shell: object, *, place: str = AWS, python: str = sys.executable) -> None:
        """Start the timer as set-up does."""
        words = [python, "-E", "-S", str(self.home / "gpuplan-job" / GUARD), "timer", self.path]
        done = subprocess.run(
            [*words, str(shell)],
            env=self.environment(place),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
        assert (done.returncode, done.stderr) == (0, "")

    def timers(self) -> list[int]:
        return started_with("timer", self.path)

    def timer_pid(self) -> int:
        """Return the timer, once it counts: until then it has children, which go."""
        wait(self.log.with_name("state.json").exists, "no timer")
        wait(lambda: len(self.timers()) == 1, "not one timer")
        return self.timers()[0]

    def end(self) -> None:
        for pid in (*self.timers(), *started_with(self.path, "--")):
            kill(pid, signal.SIGKILL)

    def _script(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)


@pytest.fixture
def node(tmp_path: Path, require) -> Iterator[Timed]:
    require("posix", "the timer is for nodes")
    made = Timed(tmp_path)
    yield made
    made.end()


def wait(until: Callable[[], object], what: str) -> None:
    last_s = time.monotonic() + WITHIN_S
    while not until():
        assert time.monotonic() < last_s, what
        time.sleep(0.05)


def set_up(node: Timed, lines: str, place: str = AWS) -> subprocess.Popen[str]:
    """Run a set-up as SkyPilot does: a shell of its own session."""
    return subprocess.Popen(
        ["bash", "-c", timed_setup(lines)],
        env={
            **node.environment(place),
            "PATH": f"{node.bin}:{Path(sys.executable).parent}:/usr/bin:/bin",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_a_set_up_that_hangs_is_stopped_and_its_machine_powered_off(node: Timed) -> None:
    node.timer(setup_s=0.5, after_setup_s=0.5)
    shell = set_up(node, "set -eu\necho begun\nsleep 600\necho ended\n")
    said, _ = shell.communicate(timeout=WITHIN_S)
    assert shell.returncode != 0
    assert "begun" in said and "ended" not in said
    assert "gpuplan: set-up did not end within" in said and "this machine ends" in said
    report = word_in_log(said)
    assert report is not None
    assert (report.why, report.outcome, report.exit_code) == ("setup", "guarded", 4)
    wait(node.off.exists, "it was not powered off")
    assert node.off.read_text().startswith("now\n")


def test_a_set_up_that_ends_in_time_is_not_touched(node: Timed) -> None:
    node.timer(setup_s=1.0, after_setup_s=0.1)
    shell = set_up(node, "set -eu\nconda() { echo conda; }\nconda\n")
    said, _ = shell.communicate(timeout=WITHIN_S)
    assert (shell.returncode, said) == (0, "conda\n")
    time.sleep(1.2)
    assert node.timer_pid() and not node.off.exists()


def test_a_set_up_that_fails_says_so_with_its_own_code(node: Timed) -> None:
    node.timer()
    shell = set_up(node, "set -eu\n(exit 7)\n")
    assert shell.wait(WITHIN_S) == 7


def test_it_outlives_the_whole_session_of_the_set_up(node: Timed) -> None:
    node.timer()
    shell = set_up(node, "sleep 600\n")
    timer = node.timer_pid()
    assert os.getsid(timer) != os.getsid(shell.pid)
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait(WITHIN_S)
    os.kill(timer, signal.SIGTERM)
    os.kill(timer, signal.SIGHUP)
    time.sleep(0.3)
    assert is_alive(timer)


def test_a_second_set_up_takes_the_place_of_the_first_one_s_timer(node: Timed) -> None:
    node.timer()
    node.begin(os.getpid())
    first = node.timer_pid()
    node.timer(unowned_s=0.3)
    node.begin(1 << 30)
    assert first not in node.timers()
    wait(node.off.exists, "the new orders do not hold")


@pytest.mark.parametrize("stopped", [False, True], ids=["forgets its limits", "was stopped"])
def test_at_the_last_limit_the_run_writes_a_checkpoint_and_then_the_machine_goes(
    node: Timed, stopped: bool
) -> None:
    saved, up = node.home / "saved", node.home / "up"
    node.timer(orders={"max_hours": 3.0 / 3600, "grace_s": 0.0, "tail_s": 0.0, "poll_s": 600.0})
    # A guard that hangs: it would have ended the run by now.
    words = ["sh", "-c", SAVES.format(saved, up)]
    run = subprocess.Popen([*words, "guard", node.path, "--"], env=node.environment())
    wait(up.exists, "no run")
    if stopped:
        run.send_signal(signal.SIGSTOP)
    node.begin(1 << 30)
    wait(node.off.exists, "it was not powered off")
    assert saved.stat().st_mtime <= node.off.stat().st_mtime
    assert run.wait(WITHIN_S) == 0


def test_a_run_keeps_its_machine_and_without_one_it_goes(node: Timed) -> None:
    node.timer(unowned_s=0.5)
    run = subprocess.Popen(["sh", "-c", "sleep 600", "guard", node.path, "--"])
    node.begin(1 << 30)
    time.sleep(1.0)
    assert not node.off.exists()
    run.kill()
    run.wait()
    wait(node.off.exists, "it was not powered off")
    assert "neither set-up nor a run was in progress" in node.log.read_text()


@pytest.mark.parametrize("variable", ["HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"])
def test_ranks_that_the_first_node_started_keep_a_machine_until_its_limits(
    node: Timed, variable: str
) -> None:
    """Of Horovod on several nodes: there is no guard but the first node's."""
    node.timer(unowned_s=0.5)
    rank = subprocess.Popen(["sleep", "600"], env={**node.environment(), variable: "8"})
    node.begin(1 << 30)
    time.sleep(1.2)
    assert not node.off.exists()
    rank.kill()
    rank.wait()
    wait(node.off.exists, "it was not powered off")


def test_ranks_of_a_head_that_is_gone_end_with_the_limit_of_the_launch(node: Timed) -> None:
    node.timer(orders={"max_hours": 1.5 / 3600, "grace_s": 0.0, "tail_s": 0.0}, unowned_s=60.0)
    rank = subprocess.Popen(["sleep", "600"], env={**node.environment(), "HOROVOD_RANK": "8"})
    node.begin(1 << 30)
    wait(node.off.exists, "it was not powered off")
    assert "all that its limits allow" in node.log.read_text()
    rank.kill()
    rank.wait()


@pytest.mark.parametrize("days", [3, -3])
def test_a_clock_that_is_set_ends_no_machine_and_keeps_none(node: Timed, days: int) -> None:
    clock = node.home / "clock"
    clock.write_text("0")
    python = node.bin / "python-set"
    python.write_text(SET_CLOCK.format(python=shlex.quote(sys.executable), clock=str(clock)))
    python.chmod(0o755)
    limits = {"max_hours": 1.0, "grace_s": 0.0, "deadline_s": time.time() + HOURS_S}
    node.timer(orders=limits, unowned_s=1.0)
    # A guard under the same clock, which holds the same limits.
    words = [str(python), "-E", "-S", str(node.home / "gpuplan-job" / GUARD), node.path, "--"]
    begun = node.home / "begun"
    run = ["sh", "-c", ': > "$0"; sleep 600', str(begun)]
    guard = subprocess.Popen([*words, *run], env=node.environment())
    # From here on the guard has read the clock: what began under another one is past its deadline.
    wait(begun.exists, "no guard")
    node.begin(1 << 30, python=str(python))
    node.timer_pid()
    later = node.home / "later"
    later.write_text(str(days * 86400.0))
    later.replace(clock)  # At once: nobody may read half of it.
    time.sleep(1.5)
    assert guard.poll() is None and not node.off.exists(), "a limit was taken for reached"
    guard.terminate()
    guard.wait(WITHIN_S)
    wait(node.off.exists, "it was not powered off")


@pytest.mark.parametrize("place", [AZURE, "", "{}"])
def test_where_a_power_off_ends_no_bill_it_is_not_tried(node: Timed, place: str) -> None:
    node.timer(unowned_s=0.1)
    node.begin(1 << 30, place=place)
    wait(lambda: not node.timers(), "the timer goes on for ever")
    assert not node.off.exists() and not (node.home / "cron").exists()
    assert "cannot power itself off" in node.log.read_text()


def test_it_finds_shutdown_where_the_path_of_the_user_does_not_hold_it(node: Timed) -> None:
    node.timer(unowned_s=0.1, power_off=("sh", "-c", f'printf %s "$PATH" >{node.off}'))
    node.begin(1 << 30)
    wait(node.off.exists, "it was not powered off")
    wait(lambda: bool(node.off.read_text()), "nothing was written")
    assert "/usr/sbin" in node.off.read_text().split(":")


def test_it_goes_on_after_a_reboot_with_what_it_had_counted(node: Timed) -> None:
    (node.home / "cron").write_text("@daily mine\n")
    node.timer(orders={"max_hours": 2.0, "grace_s": 0.0})
    node.begin(1 << 30)
    wait(lambda: "@reboot" in (node.home / "cron").read_text(), "no line for cron")
    node.begin(1 << 30)
    cron = (node.home / "cron").read_text().splitlines()
    assert cron[0] == "@daily mine" and len(cron) == 2
    node.timer_pid()  # One that has not begun to count would outlive the end of the others.
    node.end()
    wait(lambda: not node.timers(), "a timer is left")
    state = node.log.with_name("state.json")
    values = json.loads(state.read_text())
    assert values["cloud"] == "aws"
    # Two hours of the machine were counted before the reboot; no variable of SkyPilot's is there.
    state.write_text(json.dumps({**values, "used_s": 7300.0}))
    line = cron[1].replace("@reboot ", "")
    subprocess.run(["sh", "-c", line], env={**node.environment(""), "SHELL": "/bin/sh"}, check=True)
    wait(node.off.exists, "it was not powered off")
    # Somebody who starts it again for its disk keeps it.
    assert (node.home / "cron").read_text() == "@daily mine\n"


@pytest.mark.parametrize("left", ["", None])
def test_after_a_reboot_that_lost_its_count_it_counts_since_the_request(
    node: Timed, left: str | None
) -> None:
    limits = {"max_hours": 2.0, "grace_s": 0.0}
    node.timer(orders=limits)
    node.begin(1 << 30)
    wait(lambda: (node.home / "cron").exists(), "no line for cron")
    node.timer_pid()
    node.end()
    wait(lambda: not node.timers(), "a timer is left")
    state = node.log.with_name("state.json")
    state.unlink()
    if left is not None:
        state.write_text(left)
    assert not node.off.exists()
    # The machine just came up again, after all that it may cost.
    node.timer(orders={**limits, "requested_at_s": time.time() - 7300.0})
    line = (node.home / "cron").read_text().replace("@reboot ", "")
    subprocess.run(["sh", "-c", line], env={**node.environment(""), "SHELL": "/bin/sh"}, check=True)
    wait(node.off.exists, "it was not powered off")


@pytest.mark.parametrize("python", [*map(str, OLD), sys.executable])
def test_it_runs_with_the_oldest_python(node: Timed, python: str) -> None:
    node.timer(unowned_s=0.1)
    node.begin(1 << 30, python=python)
    wait(node.off.exists, "it was not powered off")


def test_without_orders_set_up_goes_on_and_says_that_nothing_ends_the_machine(node: Timed) -> None:
    shell = set_up(node, "set -eu\necho set up\n")
    said, _ = shell.communicate(timeout=WITHIN_S)
    assert shell.returncode == 0
    assert "set up" in said and "this machine does not end itself" in said


def test_a_run_that_cannot_be_killed_ends_its_machine(node: Timed) -> None:
    node.timer(margin_s=0.3)
    stuck = node.log.with_name("stuck")
    stuck.parent.mkdir()
    stuck.touch()
    shell = subprocess.Popen(["sleep", "60"])
    try:
        node.begin(shell.pid)
        node.timer_pid()
        assert not stuck.exists(), "of an earlier job"
        stuck.touch()
        wait(node.off.exists, "it was not ended")
        assert "even when it is killed" in node.log.read_text()
    finally:
        shell.kill()
        shell.wait()
