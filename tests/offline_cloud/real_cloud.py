"""The offline cloud itself: what others' tests rest on, without SkyPilot.

`make test-cloud` runs this; `make test` does not collect it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.image import CACHE
from offline_cloud.processes import born

BEGUN = "import time; print('begun', flush=True); time.sleep(600)"
START = "from offline_cloud.cloud import Cloud; c = Cloud.start({name!r}, with_parent={tied});"
WAIT = "print(c.folder, flush=True); import time; time.sleep(600)"


def until(true: Callable[[], bool], *, timeout_s: float) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)


def test_nothing_leads_out_and_nothing_of_the_caller_leads_in(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    routes = cloud.run("ip", "route", cwd=tmp_path).stdout
    assert "default" not in routes
    assert "10.76.0.0/14" in routes
    names = {line.split("=")[0] for line in cloud.run("env", cwd=tmp_path).stdout.splitlines()}
    assert "AWS_PROFILE" not in names
    (tmp_path / "here").write_text("seen")
    assert cloud.run("cat", "here", cwd=tmp_path).stdout == "seen"
    mark = f"/tmp/{tmp_path.name}-mark"
    cloud.run("touch", mark, str(Path.home() / ".offline-cloud-mark"), cwd=tmp_path)
    assert not Path(mark).exists()
    assert not (Path.home() / ".offline-cloud-mark").exists()


@pytest.mark.parametrize("way", ["kill", "interrupt"])
def test_a_command_can_be_ended_as_a_person_ends_it(cloud: Cloud, tmp_path: Path, way: str) -> None:
    begun = cloud.begin("python", "-c", BEGUN, cwd=tmp_path, log=tmp_path / "log")
    until(lambda: "begun" in begun.said, timeout_s=30)
    assert not begun.ended()
    if way == "kill":
        begun.kill()
        assert begun.wait(10) == -signal.SIGKILL
    else:
        begun.interrupt()
        assert begun.wait(10) == -signal.SIGINT
        assert "KeyboardInterrupt" in begun.said


def test_a_command_that_takes_too_long_is_ended(cloud: Cloud, tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        cloud.run("sh", "-c", "sleep 604 & sleep 604", cwd=tmp_path, timeout_s=1)
    assert cloud.run("pgrep", "-f", "sleep 604", cwd=tmp_path).stdout == ""


def test_a_cloud_ends_with_the_process_it_is_tied_to(cloud: Cloud) -> None:
    name = f"tied-{os.getpid()}"
    folder, starter = _started(name, tied=True)
    held = int((folder / "process").read_text().split()[0])
    assert born(held) is not None
    starter.kill()
    until(lambda: born(held) is None, timeout_s=10)


def test_the_next_start_removes_what_a_killed_cloud_left(cloud: Cloud) -> None:
    folder, starter = _started(f"left-{os.getpid()}", tied=False)
    starter.kill()
    held = int((folder / "process").read_text().split()[0])
    assert born(held) is not None, "untied, it outlives its starter"
    os.kill(held, signal.SIGKILL)
    until(lambda: born(held) is None, timeout_s=10)
    assert folder.exists()
    second = Cloud.start(f"next-{os.getpid()}", with_parent=True)
    assert not folder.exists()
    assert second.instances() == []
    second.stop()
    assert not second.folder.exists()
    assert cloud.run("true", cwd=Path("/")).returncode == 0, "the others are left alone"


def _started(name: str, *, tied: bool) -> tuple[Path, subprocess.Popen[str]]:
    starter = subprocess.Popen(
        [sys.executable, "-c", START.format(name=name, tied=tied) + WAIT],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    folder = Path(starter.stdout.readline().strip())
    assert folder == CACHE / "clouds" / name
    return folder, starter
