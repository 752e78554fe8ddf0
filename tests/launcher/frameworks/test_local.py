"""A launch on this machine: its exit code, its files, its end when it is stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from answers import make_plan

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.frameworks import local
from gpuplan.launcher.frameworks.launch import launch
from gpuplan.launcher.frameworks.types import Program

pytestmark = [pytest.mark.slow, pytest.mark.spread]

STOPPABLE = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], {how})
{handler}
with open("pids.part", "w") as file:
    file.write(f"{{os.getpid()}} {{child.pid}}")
os.rename("pids.part", "pids")
time.sleep(600)
"""
DRIVER = """
import sys
from pathlib import Path
from gpuplan.launcher.frameworks import local
from gpuplan.launcher.frameworks.launch import launch
framework = sys.argv[2] if len(sys.argv) > 2 else "none"
launched = launch(None, "job.py", framework, per_node=2, device="cpu")
sys.exit(local.run(launched, folder=Path("out"), grace_s=float(sys.argv[1])))
"""
WORKER = """
import os, time
name = "pid-" + os.environ["RANK"]
with open(name + ".part", "w") as file:
    file.write(str(os.getpid()))
os.rename(name + ".part", name)
time.sleep(600)
"""


def run(tmp_path: Path, source: str, command: str = "job.py", framework: str = "none") -> int:
    (tmp_path / "job.py").write_text(source)
    launched = launch(None, command, framework, device="cpu")
    return local.run(launched, folder=tmp_path / "out", cwd=tmp_path)


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_exit_code_is_the_scripts(tmp_path: Path, code: int) -> None:
    assert run(tmp_path, f"raise SystemExit({code})") == code


def test_a_job_that_a_signal_ends_has_the_code_of_a_shell(tmp_path: Path) -> None:
    assert run(tmp_path, "import os; os.kill(os.getpid(), 9)") == 128 + 9


def test_the_script_gets_its_words_and_variables(tmp_path: Path) -> None:
    source = """
import os, sys
assert sys.argv[1:] == ["a b", "$HOME", "--x"], sys.argv
assert os.environ["MASTER_ADDR"] == "127.0.0.1" and int(os.environ["MASTER_PORT"]) > 0
assert os.environ["NODE_RANK"] == "0" and os.environ["CUDA_VISIBLE_DEVICES"] == ""
"""
    assert run(tmp_path, source, "job.py 'a b' '$HOME' --x") == 0


def test_torchrun_starts_as_many_processes_as_were_asked(tmp_path: Path) -> None:
    source = """
import os
name = os.environ["RANK"] + "-of-" + os.environ["WORLD_SIZE"]
open(name, "w").close()
"""
    (tmp_path / "job.py").write_text(source)
    launched = launch(None, "job.py", "torchrun", per_node=2, device="cpu")
    assert local.run(launched, folder=tmp_path / "out", cwd=tmp_path) == 0
    assert {path.name for path in tmp_path.glob("*-of-*")} == {"0-of-2", "1-of-2"}


def test_the_files_of_a_launch_are_written_whole(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(local, "is_installed", lambda *_: True)
    monkeypatch.setattr(local, "argv_here", lambda *_: ["true"])
    (tmp_path / "job.py").touch()
    launched = launch(make_plan(layout="fsdp8"), "job.py", "deepspeed")
    out = tmp_path / "some folder" / "out"
    assert local.run(launched, folder=out, cwd=tmp_path) == 0
    assert [path.name for path in out.iterdir()] == ["deepspeed.json"]


@pytest.mark.parametrize(
    ("command", "framework", "said", "fix"),
    [
        ("gone.py", "none", "no script 'gone.py'", "give its path"),
        ("no-such-program", "none", "no program 'no-such-program'", "install it"),
        ("./job.py-not", "none", "no program './job.py-not'", "install it"),
        ("job.py", "horovod", "horovod is not installed", "pip install horovod"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, monkeypatch, command: str, framework: str, said: str, fix: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=said) as refused:
        run(tmp_path, "", command, framework)
    assert fix in (refused.value.fix or "")


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    absent = Program(command=("gone",), module="gone.main", package="gone_framework")
    assert not local.is_installed(absent, tmp_path)
    assert local.is_installed(Program(command=("x",), module="torch", package="torch"), tmp_path)


def test_a_launch_for_many_machines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is for 2 nodes"):
        local.run(launch(None, "job.py", "none", nodes=2), folder=tmp_path, cwd=tmp_path)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(local, "is_installed", lambda *_: True)
    (tmp_path / "job.py").touch()
    (tmp_path / "file").touch()
    launched = launch(make_plan(layout="fsdp8"), "job.py", "deepspeed")
    with pytest.raises(UsageError, match="cannot be written"):
        local.run(launched, folder=tmp_path / "file" / "out", cwd=tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("deaf", "own_session"), [(False, False), (True, False), (True, True)])
def test_a_stopped_job_leaves_no_process(
    tmp_path: Path, require, number: signal.Signals, deaf: bool, own_session: bool
) -> None:
    require("posix", "process groups")
    handler = "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)"
    source = STOPPABLE.format(
        how="start_new_session=True" if own_session else "", handler=handler if deaf else ""
    )
    (tmp_path / "job.py").write_text(source)
    grace_s = 0.5 if deaf else 60
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(grace_s)], cwd=tmp_path)
    pids = [int(pid) for pid in wait_for(tmp_path / "pids").split()]
    driver.send_signal(number)
    assert driver.wait(timeout=30) == 128 + number
    for pid in pids:
        assert is_gone(pid)


def test_a_stopped_torchrun_leaves_no_worker(tmp_path: Path, require) -> None:
    require("posix", "process groups")
    (tmp_path / "job.py").write_text(WORKER)
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, "60", "torchrun"], cwd=tmp_path)
    pids = [int(wait_for(tmp_path / f"pid-{rank}")) for rank in range(2)]
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(timeout=60) == 128 + signal.SIGTERM
    for pid in pids:
        assert is_gone(pid)


def wait_for(path: Path) -> str:
    until = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} never came"
        time.sleep(0.02)
    return path.read_text()


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has buried yet has."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False
