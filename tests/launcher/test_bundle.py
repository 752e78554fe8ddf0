"""The job folder runs where neither gpuplan nor anything it depends on is installed, but torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from runner_jobs import REPOSITORY, losses, make_job, plan_of

pytestmark = pytest.mark.slow

ABSENT = ("gpuplan", "pydantic", "click", "rich", "sqlalchemy", "platformdirs", "yaml", "numpy")
GPT2 = REPOSITORY / "examples" / "gpt2.py"
SIZE = {"layers": 2, "hidden": 32, "heads": 4, "vocab": 101, "seq_len": 16}
IMPORT_ALL = """
import gc, importlib, pkgutil, sys
gc.disable()  # Of modules nothing is ever garbage.
import gpuplan_job
for found in pkgutil.walk_packages(gpuplan_job.__path__, "gpuplan_job."):
    if not found.name.endswith(("__main__", "hugging_face")):  # It needs transformers.
        importlib.import_module(found.name)
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which importing what must not be needed fails."""
    for name in ABSENT:
        package = tmp_path / "absent" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"raise ModuleNotFoundError('{name} is not here')\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path / "absent"), "OMP_NUM_THREADS": "1"}


def test_a_job_needs_python_and_torch_alone(tmp_path: Path, bare: dict[str, str]) -> None:
    folder = make_job(tmp_path, GPT2, plan=plan_of(), params=SIZE, steps=3)

    done = _python(["-m", "gpuplan_job", str(folder)], folder, bare)

    assert done.returncode == 0, done.stderr
    assert len(losses(tmp_path)) == 3


def test_every_file_of_the_bundle_imports(tmp_path: Path, bare: dict[str, str]) -> None:
    folder = make_job(tmp_path, GPT2, plan=plan_of(), params=SIZE)

    done = _python(["-c", IMPORT_ALL], folder, bare)

    assert done.returncode == 0, done.stderr


def test_writing_a_job_again_leaves_nothing_of_the_old_runner(tmp_path: Path) -> None:
    folder = make_job(tmp_path, GPT2, plan=plan_of(), params=SIZE)
    (folder / "gpuplan_job" / "left_over.py").write_text("")

    make_job(tmp_path, GPT2, plan=plan_of(), params=SIZE)

    assert not (folder / "gpuplan_job" / "left_over.py").exists()


def _python(
    arguments: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((environment["PYTHONPATH"], str(folder)))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
