"""The wheel, installed away from this checkout: complete, light without torch, in nobody's way."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGE_FOLDERS = ("catalog", "profiles", "planner", "launcher", "api", "cli", "examples")
NOT_SHIPPED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "tests")

LIGHT = [
    ["--help"],
    ["--version"],
    ["gpus"],
    ["gpus", "H100-80GB-SXM"],
    ["offers", "--accelerator", "H100:8", "--top", "5"],
    ["config", "list"],
]
"""Commands that a person runs before torch is installed."""

HEAVY = {"torch", "boto3", "sky", "transformers"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel built from a copy, so that no stale `build/` folder finds its way into it."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "source", ignore=NOT_SHIPPED)
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", folder, folder / "source")
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin folder of an environment that has gpuplan and its dependencies, not torch."""
    environment = tmp_path_factory.mktemp("installed")
    venv.create(environment, with_pip=False)
    bin_dir = environment / ("Scripts" if os.name == "nt" else "bin")
    pip("--python", bin_dir / "python", "install", "--no-deps", "--no-index", wheel)
    (site_packages,) = environment.rglob("site-packages")
    # Dependencies come from the environment of the tests: a path file adds its folder and, read
    # from here, none of the path files in it, so this checkout stays out.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (site_packages / "no_torch.pth").write_text("import sys; sys.modules['torch'] = None\n")
    return bin_dir


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return somebody's repository, whose folders are named as ours are."""
    for name in PACKAGE_FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    return tmp_path


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    files = [file for folder in PACKAGE_FOLDERS for file in (ROOT / folder).rglob("*")]
    ours = {
        f"gpuplan/{file.relative_to(ROOT).as_posix()}"
        for file in [*files, *ROOT.glob("*.py"), ROOT / "py.typed"]
        if file.is_file() and "__pycache__" not in file.parts
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = {name for name in names if ".dist-info/" not in name}
    assert shipped == ours
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.parametrize("args", LIGHT, ids=" ".join)
def test_light_commands_run_without_torch_from_another_folder(
    installed: Path, repository: Path, args: list[str]
) -> None:
    done = call(installed / "gpuplan", *args, cwd=repository)
    assert (done.returncode, done.stderr) == (0, "")
    as_module = call(installed / "python", "-m", "gpuplan", *args, cwd=repository)
    assert (as_module.returncode, as_module.stdout) == (0, done.stdout)


@pytest.mark.parametrize("args", LIGHT, ids=" ".join)
def test_light_commands_import_no_sdk(args: list[str], tmp_path: Path) -> None:
    program = (
        f"import sys; from gpuplan.cli.main import run; code = run({args!r});"
        f"sys.exit(code or ' '.join({HEAVY!r} & set(sys.modules)) or 0)"
    )
    done = call(sys.executable, "-c", program, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_somebodys_own_catalog_is_not_shadowed(installed: Path, repository: Path) -> None:
    program = (
        "import gpuplan.catalog.units, gpuplan.cli.main, catalog, profiles;"
        "print(catalog.MINE, profiles.MINE, gpuplan.catalog.units.GIB)"
    )
    done = call(installed / "python", "-c", program, cwd=repository)
    assert (done.stdout, done.stderr) == (f"True True {2**30}\n", "")


def test_examples_are_importable_and_lie_in_the_package(installed: Path, tmp_path: Path) -> None:
    program = "import gpuplan.examples as e, pathlib; print(pathlib.Path(e.__path__[0]))"
    done = call(installed / "python", "-c", program, cwd=tmp_path)
    folder = Path(done.stdout.strip())
    assert ROOT not in folder.parents
    assert (folder / "gpt2.py").is_file()


def pip(*args: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "-qq", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def call(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, args)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
