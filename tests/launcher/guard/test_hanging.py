"""What hangs in the kernel (a GPU, a disk, whoever reads the log) stops neither guard nor timer."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from guards import Node, make_orders

from gpuplan.launcher.guard import main as guard_main
from gpuplan.launcher.guard.decisions import session
from gpuplan.launcher.guard.node import stuck
from gpuplan.launcher.guard.node.patience import OneAtATime
from gpuplan.launcher.guard.node.processes import is_alive, kill, run_within

WITHIN_S = 60.0


class Unkillable:
    """A command that waits in the kernel: nothing ends it."""

    def __init__(self) -> None:
        self.killed = 0

    def start(self) -> None:
        return None

    def wait(self, seconds: float) -> None:
        time.sleep(0.001)

    def ask_to_stop(self, *, by_file: bool) -> None:
        return None

    def kill(self) -> None:
        self.killed += 1

    def was_stopped_elsewhere(self) -> bool:
        return False

    def close(self) -> None:
        self.kill()


def test_a_call_that_hangs_is_left_and_not_made_again_until_it_is_back() -> None:
    hangs, made = threading.Event(), []
    calls = OneAtATime()
    calls.within(0.0, hangs.wait)
    calls.within(WITHIN_S, lambda: made.append("while it hangs"))
    assert made == []
    hangs.set()
    last_s = time.monotonic() + WITHIN_S
    while not made and time.monotonic() < last_s:
        calls.within(WITHIN_S, lambda: made.append("since"))
    assert made == ["since"]


def test_a_call_may_wait_for_an_earlier_one_of_another_thread() -> None:
    hangs, made = threading.Event(), []
    calls = OneAtATime()
    calls.within(0.0, hangs.wait)
    threading.Timer(0.05, hangs.set).start()
    calls.within(WITHIN_S, lambda: made.append("after it"), after_earlier=True)
    assert made == ["after it"]


def test_a_command_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired) as raised:
        run_within(["sleep", "1000"], 0.01)
    assert raised.value.timeout == 0.01
    assert run_within(["sh", "-c", "cat; exit 3"], WITHIN_S, given=b"read") == (3, b"read")
    assert run_within(["sh", "-c", "echo no >&2"], WITHIN_S) == (0, b"")
    assert run_within(["sh", "-c", "echo no >&2"], WITHIN_S, errors=True) == (0, b"no\n")


def test_a_run_that_cannot_be_killed_is_left_to_the_timer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(session, "LEAVE_AFTER_S", 0.0)
    # A limit that is passed before it begins would start nothing.
    orders = make_orders(max_hours=0.2 / 3600, requested_at_s=time.time(), grace_s=0.0, poll_s=0.01)
    out = tmp_path / "out"
    out.mkdir()
    guard = guard_main.Guard(orders, ["true"], out)
    guard._command.close()
    command = guard._command = Unkillable()  # type: ignore[assignment]

    code = guard.run()

    said = capsys.readouterr().out
    assert (code, command.killed >= 1) == (4, True)
    assert "does not end even so" in said and "gpuplan-guard: {" in said
    assert stuck.is_noted()
    stuck.forget()
    assert not stuck.is_noted()


@pytest.mark.slow
def test_limits_hold_where_nobody_reads_the_log(tmp_path: Path, require) -> None:
    require("linux", "nodes are")
    node = Node(tmp_path)
    node.orders(max_hours=1.5 / 3600, requested_at_s=time.time(), grace_s=1.0)
    node.be_impatient()
    words = [sys.executable, "-c", "print('x' * 10**6)"]
    started = node.start(*words)
    pid = started.pid
    # Nothing is read from its pipe: neither what is trained nor the guard can write on.
    last_s = time.monotonic() + WITHIN_S
    while is_alive(pid) and time.monotonic() < last_s:
        time.sleep(0.05)
    ended = is_alive(pid) is None
    kill(pid, 9)
    started.communicate()
    assert ended
    assert node.attempts[-1]["verdict"]["why"] == "max-hours"
