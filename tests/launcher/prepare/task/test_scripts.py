"""The scripts of a task, run under a real shell beside stand-ins."""

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from answers import make_plan
from launches import RUN_ID, make_project, make_task, with_packages

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.lifecycle.job.guard_report import lacks_results
from gpuplan.launcher.prepare.request import (
    LaunchRequest,
)
from gpuplan.launcher.prepare.task.node_setup import setup_script
from gpuplan.launcher.prepare.task.run_script import upload_lines

NASTY = 'x\'; touch "$HOME/owned" `id` $(id) \\ & | > y'


PYTHON = '#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n'


def ran_on_a_node(
    request: LaunchRequest, home: Path, *, after: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a task's script beside a python3 that says its words and ends with exit code 7."""
    script = make_task(make_plan(layout="dp8"), request).config["run"]
    (home / "sky_workdir").mkdir()
    (home / "python3").write_text(PYTHON)
    (home / "python3").chmod(0o755)
    return subprocess.run(
        ["bash", "-c", script + after],
        env={"HOME": str(home), "PATH": f"{home}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_shell_characters_in_a_command_stay_data(tmp_path: Path, require) -> None:
    require("posix", "the scripts are for sh")
    command = shlex.join(["train.py", "--name", NASTY])
    done = ran_on_a_node(LaunchRequest(command=command, framework="none", fetch="/tmp/x"), tmp_path)
    job = tmp_path / "gpuplan-job"
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        *("-E", "-S", f"{job}/gpuplan_guard", f"{job}/guard.json", "--"),
        *("python3", "train.py", "--name", NASTY),
    ]
    assert not (tmp_path / "owned").exists()


def test_what_skypilot_adds_to_the_script_is_reached_with_its_exit_code(
    tmp_path: Path, require
) -> None:
    require("posix", "the scripts are for sh")
    request = LaunchRequest(command="train.py", framework="none", fetch="/tmp/x")
    done = ran_on_a_node(request, tmp_path, after="\necho waits for uploads after $?")
    assert done.stdout.splitlines()[-1] == "waits for uploads after 7"


def test_a_shared_folder_takes_the_results(tmp_path: Path, require) -> None:
    require("posix", "the scripts are for sh")
    shared = tmp_path / "nfs" / "runs"
    request = LaunchRequest(command="train.py", framework="none", shared=str(shared))
    assert make_task(make_plan(layout="dp8"), request).out_dir == f"{shared}/{RUN_ID}"

    missing = ran_on_a_node(request, tmp_path)
    assert missing.returncode == 2
    assert missing.stderr.splitlines() == [
        f"There is no folder {shared} on this node; give --shared one that is."
    ]
    assert not shared.exists()

    shared.mkdir(parents=True)
    (tmp_path / "second").mkdir()
    assert ran_on_a_node(request, tmp_path / "second").returncode == 7
    assert [one.name for one in shared.iterdir()] == [RUN_ID]


UV = """#!/bin/sh
[ "$1" != venv ] || { mkdir -p "$HOME/gpuplan-env/bin"; : >"$HOME/gpuplan-env/bin/activate"; }
echo "uv $*" >>"$HOME/log"
"""


SMI = '#!/bin/sh\necho "$DRIVER.10.02"\n'


def ran(script: str, folder: Path, driver: int) -> tuple[int, str, list[str]]:
    """Return how a setup ended beside stand-ins, what it said, and what it asked of uv."""
    (folder / "sky_workdir").mkdir(parents=True)
    for name, text in (("uv", UV), ("nvidia-smi", SMI), ("python3", "#!/bin/sh\nexit 0\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", script],
        env={"HOME": str(folder), "PATH": f"{folder}:/usr/bin:/bin", "DRIVER": str(driver)},
        capture_output=True,
        text=True,
        check=False,
    )
    log = folder / "log"
    return done.returncode, done.stderr, log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize(
    ("accelerator", "driver", "build"),
    [
        ("A100-40GB-SXM", 580, "cu130"),
        ("A100-40GB-SXM", 575, "cu126"),
        ("A100-40GB-SXM", 470, None),
        ("T4", 590, "cu130"),
        ("V100-16GB-SXM2", 590, "cu126"),
        ("B200-180GB-SXM", 580, "cu130"),
        ("B200-180GB-SXM", 570, None),
        ("GB200", 580, "cu130"),
    ],
)
def test_torch_is_the_build_that_driver_and_device_run(
    accelerator: str, driver: int, build: str | None, tmp_path: Path, require
) -> None:
    require("posix", "the scripts are for sh")
    device = load_catalogue().accelerators[accelerator]
    environment = with_packages("requirements.txt").environment
    script = setup_script(environment, device, with_torch=True, image=None)
    code, said, asked = ran(script, tmp_path, driver)
    if build is None:
        assert code == 1
        assert f"this node has {driver}" in said
        return
    assert (code, said) == (0, "")
    assert asked[1:] == [
        f"uv pip install --quiet torch==2.13.0 --index-url https://download.pytorch.org/whl/{build}",
        f"uv pip install --quiet -r requirements.txt -c {tmp_path}/gpuplan-torch.txt",
    ]
    assert (tmp_path / "gpuplan-torch.txt").read_text() == "torch==2.13.0\n"


def test_a_tracker_is_installed_where_it_is_missing_and_its_failure_ends_nothing(
    tmp_path: Path, require
) -> None:
    require("posix", "the scripts are for sh")
    device = load_catalogue().accelerators["A100-40GB-SXM"]
    environment = with_packages(None).environment
    script = setup_script(
        environment, device, with_torch=True, image=None, trackers=("mlflow", "wandb")
    )
    # Its stand-in for Python finds whatever it is asked for.
    code, _, asked = ran(script.replace("import mlflow", "sys.exit(1)"), tmp_path, 580)
    assert (code, len(asked)) == (0, 2)
    lines = [line for line in script.splitlines() if "nothing is written to it" in line]
    (tmp_path / "broken").mkdir()
    for name in ("python3", "uv"):
        (tmp_path / "broken" / name).write_text('#!/bin/sh\necho "$*" >>"$HOME/said"\nexit 1\n')
        (tmp_path / "broken" / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-euc", "\n".join(lines)],
        env={"HOME": str(tmp_path), "PATH": f"{tmp_path}/broken:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "wandb is not installed here" in done.stderr
    said = (tmp_path / "said").read_text()
    assert "pip install --quiet mlflow-skinny sqlalchemy alembic -c" in said
    assert "pip install --quiet wandb -c" in said


def test_a_device_whose_torch_is_not_known_needs_an_environment() -> None:
    device = load_catalogue().accelerators["MI300X"]
    environment = make_project().environment
    with pytest.raises(UsageError, match="MI300X"):
        setup_script(environment, device, with_torch=True, image=None)
    theirs = replace(environment, found="requirements.txt")
    assert "torch==" not in setup_script(theirs, device, with_torch=True, image=None)


def waiting(
    after: str, *, wait_s: float, path: str = os.defpath
) -> subprocess.CompletedProcess[str]:
    """Run what a task's script does once its run has ended with 7, and SkyPilot's lines after."""
    lines = ["(exit 7)", *upload_lines(wait_s), "theirs=$?", after, "exit $theirs"]
    return subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_wait_for_uploads_has_an_end(require) -> None:
    require("linux", "nodes are")
    done = waiting("sleep 1", wait_s=600)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
    cut = waiting("while true; do sleep 0.2; done", wait_s=1)
    assert cut.returncode == -9
    assert lacks_results(cut.stdout)
    assert not lacks_results(done.stdout)


def test_a_clock_that_is_set_does_not_move_the_end_of_that_wait(tmp_path: Path, require) -> None:
    require("linux", "nodes are")
    said = tmp_path / "date"
    # It is an hour later at every look.
    said.write_text(
        f"#!/bin/sh\necho >>{tmp_path}/looks\necho $((3600 * $(wc -l <{tmp_path}/looks)))\n"
    )
    said.chmod(0o755)
    done = waiting("sleep 2", wait_s=600, path=f"{tmp_path}:{os.defpath}")
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
