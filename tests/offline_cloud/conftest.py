"""One cloud for all tests of a run."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.image import missing

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


def _keep(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
