"""One cloud for all tests of a run, and the real command line inside it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.image import missing
from offline_cloud.processes import Inside

RunCli = Callable[..., subprocess.CompletedProcess[str]]
BeginCli = Callable[..., Inside]
LOGS = ("server.log", "consoles", "home/.sky/api_server/server.log", "home/sky_logs")
"""What may say why a test failed; copied beside the tests' own folders."""


@pytest.fixture(scope="session")
def session_cloud(
    require: Callable[[str, str], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cloud]:
    """Yield a cloud that ends with this process, however it ends."""
    require("cloud", missing() or "SkyPilot is not installed: make test-cloud installs it")
    base = tmp_path_factory.getbasetemp()
    cloud = Cloud.start(f"pytest-{os.getpid()}", visible=[base], with_parent=True)
    yield cloud
    for name in LOGS:
        _keep(cloud.folder / name, base / "cloud-logs" / name)
    cloud.stop()


@pytest.fixture
def cloud(session_cloud: Cloud) -> Iterator[Cloud]:
    """Yield the cloud of this run, which refuses nothing at first; no test leaves a machine on."""
    session_cloud.fail()
    before = {machine.id for machine in session_cloud.instances()}
    yield session_cloud
    session_cloud.fail()
    left = [one for one in session_cloud.instances() if one.runs and one.id not in before]
    session_cloud.terminate_machines(left)
    assert not left, f"the test left machines that cost money: {left}"


@pytest.fixture
def run_cli(cloud: Cloud, gpuplan_home: Path, tmp_path: Path) -> RunCli:
    """Return `run_cli(*words, cwd=…, timeout_s=…)`: the real `gpuplan` inside, to its end."""

    def run(*words: str, cwd: Path = tmp_path, timeout_s: float = 300.0, **variables: str):
        variables = {"GPUPLAN_HOME": str(gpuplan_home), **variables}
        return cloud.run("gpuplan", *words, cwd=cwd, timeout_s=timeout_s, **variables)

    return run


@pytest.fixture
def begin_cli(cloud: Cloud, gpuplan_home: Path, tmp_path: Path) -> BeginCli:
    """Return `begin_cli(*words, log=…, cwd=…)`: the same, to be interrupted or killed."""

    def begin(*words: str, log: Path, cwd: Path = tmp_path, **variables: str) -> Inside:
        variables = {"GPUPLAN_HOME": str(gpuplan_home), **variables}
        return cloud.begin("gpuplan", *words, cwd=cwd, log=log, **variables)

    return begin


def _keep(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
