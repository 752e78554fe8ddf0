"""One cloud for all tests of a run."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from offline_cloud.cloud import Cloud
from offline_cloud.image import missing

LOGS = ("server.log", "consoles", "home/.sky/api_server/server.log", "home/sky_logs")
"""What may say why a test failed; copied beside the tests' own folders."""
MACHINE_LOGS = ("sky_logs", ".sky/rclone_log")
"""The same of a machine that a test left on, below the home of its person."""


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
def cloud(session_cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Yield the cloud of this run, which refuses nothing at first; no test leaves a machine on."""
    session_cloud.fail()
    before = {machine.id for machine in session_cloud.instances()}
    yield session_cloud
    session_cloud.fail()
    left = [one for one in session_cloud.instances() if one.runs and one.id not in before]
    kept = tmp_path_factory.getbasetemp() / "cloud-logs" / "machines"
    for one in left:
        # An overlay keeps what the machine wrote beside what its image held.
        written = session_cloud.folder / "machines" / one.id / "layers" / "home/ubuntu" / "upper"
        for name in MACHINE_LOGS:
            _keep(written / name, kept / one.id / name)
    session_cloud.terminate_machines(left)
    assert not left, f"the test left machines that cost money: {left}"


def _keep(source: Path, target: Path) -> None:
    if source.is_dir():
        # A machine that is on may remove a file while it is copied; the others are kept.
        with suppress(shutil.Error):
            shutil.copytree(source, target, symlinks=True)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
