"""Shared fixtures: every test gets its own gpuplan home, so none sees the person's real data."""

import gc
import importlib.util
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

# Models of tests are too small for two threads, which wait for each other by spinning: the workers
# and the ranks beside each other need the cores. Set before torch is imported, which reads it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

NOBODY = 65534
"""The user id that owns nothing."""
HOME_NUMBERS = count()
"""Of the gpuplan homes of this process, one a test."""


@pytest.fixture(scope="session")
def gpuplan_homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all gpuplan homes.

    pytest looks through all its folders whenever it makes one with a number, so that some thousand
    more among them would cost each test some milliseconds.
    """
    return tmp_path_factory.mktemp("gpuplan-homes", numbered=False)


@pytest.fixture(autouse=True)
def gpuplan_home(gpuplan_homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point the data, cache and config folders at an empty temporary folder."""
    home = gpuplan_homes / str(next(HOME_NUMBERS))
    home.mkdir(mode=0o700)
    for name in [name for name in os.environ if name.startswith("GPUPLAN_")]:
        monkeypatch.delenv(name)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPUPLAN_HOME", str(home))
    return home


@pytest.fixture(scope="session", autouse=True)
def forked_traces() -> Iterator[None]:
    """Fork the processes that make Profiles from one that has torch loaded, where that is safe."""
    # A test of these fixtures themselves has nothing of tests/support.
    needed = ("torch", "forked_traces")
    if sys.platform != "linux" or any(importlib.util.find_spec(one) is None for one in needed):
        yield
        return
    from forked_traces import FORKING

    from gpuplan.profiles.tracing_process import child

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "subprocess", FORKING)
        yield


@pytest.fixture
def own_trace_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the processes that make Profiles as gpuplan does, for tests of just that."""
    from gpuplan.profiles.tracing_process import child

    monkeypatch.setattr(child, "subprocess", subprocess)


@pytest.fixture
def home_without_privileges(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a gpuplan home of nobody's, and be nobody: root may write anywhere."""
    # Not below pytest's own folder, which nobody may not even enter.
    home = Path(tempfile.mkdtemp(prefix="gpuplan-nobody-"))
    monkeypatch.setenv("GPUPLAN_HOME", str(home))
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if is_root:
        os.chown(home, NOBODY, -1)
        os.seteuid(NOBODY)
    try:
        yield home
    finally:
        if is_root:
            os.seteuid(0)
        shutil.rmtree(home)


def pytest_configure() -> None:
    """Let no property fail for being slow: the machine may be busy with other things.

    A shell starts what it runs in the background with Ctrl-C ignored, and so would be what the
    tests start. No garbage collection looks through what is imported and collected.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if importlib.util.find_spec("hypothesis") is None:
        return
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "gpuplan", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("gpuplan")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the workers of xdist begin with what takes long, so that none ends long after another.

    Raises:
        UsageError: a test without other cases is marked `repeats`, so that `make test` has none.
    """
    for item in items:
        if item.get_closest_marker("repeats") and not (
            item.get_closest_marker("slow") and hasattr(item, "callspec")
        ):
            raise pytest.UsageError(f"only a case of a slow test may be `repeats`: {item.nodeid}")
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda one: one.path not in slow)


def pytest_collection_finish() -> None:
    """Let no later garbage collection look through what was imported and collected: it stays."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than cores, four at most: long tests wait for other processes."""
    return min(4, (os.cpu_count() or 1) + 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what keeps the tests of a file in one worker, but for files marked `spread`.

    What a module makes once for its tests is then made once. xdist 3.8 has groups for this, but
    puts them into test ids in a way that pytest 9.2 no longer heeds.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler.loadfile import LoadFileScheduling

    class FilesOrTests(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return nodeid if _is_spread(config.rootpath / file) else file

    return FilesOrTests(config, log)


@cache
def _is_spread(file: Path) -> bool:
    return "pytest.mark.spread" in file.read_text(encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`, which rewrites the golden files, and the options of `make soak`."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")
    parser.addoption(
        "--soak-seed",
        type=int,
        default=int(os.environ.get("GPUPLAN_SOAK_SEED") or time.time()),
        help="what a soak draws its random moments from; default: GPUPLAN_SOAK_SEED, else the time",
    )
    parser.addoption(
        "--soak-seconds",
        type=float,
        default=math.inf,
        help="begin no further round of a soak after so many seconds; default: do all of them",
    )


@pytest.fixture
def soak_seed(request: pytest.FixtureRequest) -> int:
    """Return what a soak draws from: the same one draws the same rounds."""
    return int(request.config.option.soak_seed)


@pytest.fixture(scope="session")
def soak_until_s(request: pytest.FixtureRequest) -> float:
    """Return the time.monotonic() after which no soak begins a further round."""
    return time.monotonic() + float(request.config.option.soak_seconds)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Return `golden(path, text)`: the text is what the file holds, or becomes it on request."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        held = path.read_text(encoding="utf-8") if path.exists() else ""
        assert text == held, f"{path.name} has changed: see it with pytest --update-golden"

    return compare


Require = Callable[[str, str], None]

REQUIRED = frozenset(filter(None, os.environ.get("GPUPLAN_REQUIRE", "").split(",")))
"""Capabilities this run promises to have: missing one is a failure, not a skip."""


@pytest.fixture(scope="session")
def require() -> Require:
    """Return `require(capability, reason)`: the one way in which a test may skip itself."""

    def check(capability: str, reason: str) -> None:
        if CAPABILITIES[capability]():
            return
        if capability in REQUIRED:
            pytest.fail(f"GPUPLAN_REQUIRE names {capability!r}, which is missing: {reason}")
        pytest.skip(f"needs {capability}: {reason}")

    return check


def _can_link() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            (Path(folder) / "link").symlink_to(folder)
        except OSError:
            return False
    return True


def _has_accelerator() -> bool:
    import torch

    return torch.cuda.is_available()


def _has_bf16_lstm() -> bool:
    import torch

    lstm, x = torch.nn.LSTM(8, 8), torch.zeros(2, 2, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        try:
            lstm(x)
        except RuntimeError:
            return False
    return True


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _has_skypilot() -> bool:
    return importlib.util.find_spec("sky") is not None


def _has_gathered_tables() -> bool:
    root = Path(__file__).parents[1]
    return any((folder / "shared/data/catalog").is_dir() for folder in (root, root.parent))


def _has_libreoffice() -> bool:
    return shutil.which("soffice") is not None


def _has_browser() -> bool:
    from browser import missing

    return missing() is None


def _has_cloud_clients() -> bool:
    names = ("boto3", "google.cloud.compute_v1", "azure.mgmt.compute", "moto", "tenacity")
    try:
        return all(importlib.util.find_spec(name) is not None for name in names)
    except ModuleNotFoundError:
        return False


def _has_all(*modules: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in modules)


def _can_run_a_cloud() -> bool:
    from offline_cloud.image import missing

    return _has_skypilot() and missing() is None


CAPABILITIES: dict[str, Callable[[], bool]] = {
    "no-cuda-packages": lambda: not any(map(_is_installed, ("apex", "flash_attn", "xformers"))),
    "posix": lambda: os.name == "posix",
    "linux": lambda: sys.platform == "linux",
    "root": lambda: hasattr(os, "geteuid") and os.geteuid() == 0,
    "rsync": lambda: shutil.which("rsync") is not None,
    "symlinks": _can_link,
    "accelerator": _has_accelerator,
    "bf16-lstm": _has_bf16_lstm,
    "gathered-tables": _has_gathered_tables,
    "scipy": lambda: _has_all("scipy"),
    "skypilot": _has_skypilot,
    "cloud": _can_run_a_cloud,
    "cloud-clients": _has_cloud_clients,
    "libreoffice": _has_libreoffice,
    "browser": _has_browser,
    "tensorboard": lambda: _has_all("tensorboard"),
    "webdataset": lambda: _has_all("webdataset"),
    "datasets": lambda: _has_all("datasets"),
    "torchdata": lambda: _has_all("torchdata"),
    "wandb": lambda: _has_all("wandb"),
    "mlflow": lambda: _has_all("mlflow", "sqlalchemy", "alembic"),
}
