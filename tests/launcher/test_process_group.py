"""A child with all that it starts: how it is told to stop, and that nothing of it stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuplan.launcher.process_group import Ended, NotStartedError, marked_processes, run_child

pytestmark = pytest.mark.slow

MARK = ("GPUPLAN_TEST_CHILD", f"child-{os.getpid()}")
DRIVER = """
import os, sys
from gpuplan.launcher.process_group import run_child
name, value, grace_s, script = sys.argv[1:]
ended = run_child(
    [sys.executable, "-c", script],
    environment=os.environ,
    mark=(name, value),
    grace_s=float(grace_s) if grace_s else None,
)
print(ended.code, *ended.signals)
"""
NOTES_ITS_SIGNALS = """
import os, signal, sys, time
def note(number, frame):
    with open("heard", "a") as file:
        file.write(str(number) + " ")
    if number == signal.SIGTERM:
        sys.exit(3)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, note)
{starts}
time.sleep(600)
"""
ALONE = NOTES_ITS_SIGNALS.format(starts='open("ready", "w").close()')
WITH_OTHERS = NOTES_ITS_SIGNALS.format(
    starts="""
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    open("ready", "w").close()
"""
)
"""With a process in another session, which only a kill of all that is marked reaches."""


@pytest.fixture(autouse=True)
def on_posix(require) -> None:
    require("posix", "process groups")


def start(folder: Path, script: str, *, grace_s: float | None = None) -> subprocess.Popen[str]:
    """Return a process that runs a child, once the child is ready to hear signals."""
    words = [*MARK, "" if grace_s is None else str(grace_s), script]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *words], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    wait_until((folder / "ready").exists)
    return driver


def wait_until(is_so) -> None:
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.02)


def test_a_child_hears_sigterm_whatever_signal_came(tmp_path: Path) -> None:
    driver = start(tmp_path, WITH_OTHERS)
    driver.send_signal(signal.SIGINT)
    assert driver.communicate(timeout=30)[0].split() == ["3", str(int(signal.SIGINT))]
    assert (tmp_path / "heard").read_text().split() == [str(int(signal.SIGTERM))]
    wait_until(lambda: marked_processes(*MARK) == [])


def test_with_a_grace_time_a_child_hears_the_signal_itself_and_is_killed_later(
    tmp_path: Path,
) -> None:
    driver = start(tmp_path, WITH_OTHERS, grace_s=1)
    driver.send_signal(signal.SIGINT)
    assert driver.communicate(timeout=30)[0].split() == ["-9", str(int(signal.SIGINT))]
    assert (tmp_path / "heard").read_text().split() == [str(int(signal.SIGINT))]
    wait_until(lambda: marked_processes(*MARK) == [])


def test_the_second_signal_kills_a_child_that_does_not_end(tmp_path: Path) -> None:
    deaf = WITH_OTHERS.replace("sys.exit(3)", "pass")
    driver = start(tmp_path, deaf)
    driver.send_signal(signal.SIGTERM)
    wait_until((tmp_path / "heard").exists)
    driver.send_signal(signal.SIGINT)
    said = driver.communicate(timeout=30)[0].split()
    assert said == ["-9", str(int(signal.SIGTERM)), str(int(signal.SIGINT))]
    wait_until(lambda: marked_processes(*MARK) == [])


@pytest.mark.parametrize("grace_s", [None, 60])
def test_a_child_is_told_when_we_are_killed(tmp_path: Path, require, grace_s: float | None) -> None:
    require("linux", "a signal from the end of a parent")
    driver = start(tmp_path, ALONE, grace_s=grace_s)
    driver.kill()
    driver.communicate(timeout=30)
    heard = tmp_path / "heard"
    wait_until(lambda: heard.exists() and heard.read_text().endswith(" "))
    assert heard.read_text().split() == [str(int(signal.SIGTERM))]
    wait_until(lambda: marked_processes(*MARK) == [])


def test_a_child_runs_where_and_with_what_it_is_told(tmp_path: Path) -> None:
    script = "import os, sys; open(os.environ['NAME'], 'x').close(); print('out'); sys.exit(5)"
    with (tmp_path / "output").open("wb") as output:
        ended = run_child(
            [sys.executable, "-c", script],
            environment={**os.environ, "NAME": "made"},
            cwd=tmp_path,
            output=output.fileno(),
        )
    assert ended == Ended(code=5, signals=())
    assert (tmp_path / "made").exists()
    assert (tmp_path / "output").read_text() == "out\n"


def test_a_program_that_does_not_start_is_named() -> None:
    with pytest.raises(NotStartedError, match="no-such-program does not start: No such file"):
        run_child(["no-such-program"], environment=os.environ)
