"""The repository's root is the package: it opens in any folder, and checkers see its real types."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gpuplan
from gpuplan import api
from gpuplan.catalog.version import VERSION

ROOT = Path(__file__).parents[1]

WITNESS = """
import sys

def test_no_second_copy_of_the_package() -> None:
    import gpuplan.api

    copies = [name for name in sys.modules if name.endswith(".api") and name != "gpuplan.api"]
    assert not [name for name in copies if hasattr(sys.modules[name], "estimate")]
"""


@pytest.mark.parametrize("name", ["gpuplan-main", "a b", "house"])
def test_pytest_runs_in_a_clone_of_any_name(name: str, tmp_path: Path) -> None:
    clone = tmp_path / name
    (clone / "tests").mkdir(parents=True)
    for file in ("__init__.py", "pyproject.toml"):
        shutil.copy(ROOT / file, clone)
    shutil.copytree(ROOT / "api", clone / "api")
    (clone / "tests" / "test_witness.py").write_text(WITNESS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=clone,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert gpuplan.__version__ == VERSION == project["version"]


def test_names_that_are_not_public_are_refused_without_an_import() -> None:
    code = (
        "import sys, gpuplan\n"
        "for name in ('pytest_plugins', 'no_such_name', '_private'):\n"
        "    assert not hasattr(gpuplan, name), name\n"
        "assert 'gpuplan.api' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_public_names_are_listed_once_for_people_and_once_for_tools() -> None:
    assert list(gpuplan.PUBLIC) == api.__all__
    assert set(api.__all__) <= set(dir(gpuplan))


@pytest.mark.slow
def test_a_type_checker_sees_the_types_of_the_public_names(tmp_path: Path) -> None:
    program = (
        "import gpuplan\n"
        "reveal_type(gpuplan.estimate('model.py'))\n"
        "reveal_type(gpuplan.parse_layout('dp8'))\n"
    )
    (tmp_path / "use.py").write_text(program)
    config = f'{{"extraPaths": ["{ROOT / ".typing"}"], "include": ["."]}}'
    (tmp_path / "pyrightconfig.json").write_text(config)
    checker = Path(sys.executable).with_name("basedpyright")
    done = subprocess.run(
        [checker, "--pythonpath", sys.executable, "use.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert 'is "Estimate"' in done.stdout, done.stdout
    assert 'is "Layout"' in done.stdout, done.stdout
