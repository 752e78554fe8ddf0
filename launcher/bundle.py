"""The job folder: everything that a machine with Python and torch needs to run one plan.

JOB/gpuplan_job/    the runner, and the files that load a model file
JOB/job.json        the model, the steps, where results land
JOB/plan.json       the plan, if there is one
JOB/gpuplan_guard/  the guard and the timer of a rented machine, and what they hold it to:
JOB/guard.json
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ..catalog.files import write_atomically
from .guard.orders import Orders
from .runner.job import Job, write_job

PACKAGE = "gpuplan_job"
GUARD = "gpuplan_guard"
ORDERS_FILE = "guard.json"
CARRIED = (
    "catalog/errors.py",
    "catalog/files.py",
    "catalog/units.py",
    "catalog/vocabulary.py",
    "planner/parallelism/pipeline_chunks.py",
    "planner/plan/errors.py",
    "planner/plan/layout.py",
    "planner/plan/runnable.py",
    "profiles/user_model",
)
"""What the runner imports from outside its own folder, a folder whole; a test keeps it complete."""
ENTRY = '''"""Runs a job: python -m gpuplan_job JOB-FOLDER, alone or under torchrun."""

import sys

from .launcher.runner.processes.ending import end_at_once
from .launcher.runner.main import main

if __name__ == "__main__":
    end_at_once(main(sys.argv[1:]))
'''

GUARD_ENTRY = '''"""Starts the guard: python3 gpuplan_guard guard.json -- COMMAND…

Or the timer that ends the machine: python3 gpuplan_guard timer guard.json SHELL-PID.
"""

import os
import sys

from guard import main, timer

if __name__ == "__main__":
    words = sys.argv[1:]
    code = timer.main(words[1:]) if words[:1] == [timer.SUBCOMMAND] else main.main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    # At once: a thread may still wait for a disk that does not answer.
    os._exit(code)
'''


def write_job_folder(folder: Path, job: Job) -> None:
    """Write a job and the runner that runs it.

    Args:
        folder: created if it does not exist; files of an older job in it are replaced.
        job: what is to be run.
    """
    package = _emptied(folder / PACKAGE)
    _copy(_root(), (*CARRIED, "launcher/runner"), package)
    for sub in ("", "catalog", "planner", "profiles", "launcher"):
        (package / sub / "__init__.py").write_text("", encoding="utf-8")
    (package / "__main__.py").write_text(ENTRY, encoding="utf-8")
    write_job(folder, job)


def write_guard(folder: Path) -> None:
    """Write the guard into a job folder; what was there of an older one is replaced."""
    package = _emptied(folder / GUARD)
    # One level down, so that a node needs no more than the folder's path to run it.
    _copy(_root() / "launcher", ("guard",), package)
    (package / "__main__.py").write_text(GUARD_ENTRY, encoding="utf-8")


def write_orders(folder: Path, orders: Orders) -> None:
    """Write what the guard holds a run to, again whenever it is launched again."""
    write_atomically(folder / ORDERS_FILE, orders.to_json())


def _root() -> Traversable:
    return resources.files(__name__.split(".")[0])


def _copy(root: Traversable, names: Iterable[str], package: Path) -> None:
    """Copy the Python files of the names, which are seen from the root, into a package."""
    for name in _files(root, names):
        target = package / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((root / name).read_text(encoding="utf-8"), encoding="utf-8")


def _files(root: Traversable, names: Iterable[str]) -> Iterator[str]:
    """Yield the Python files of the names, those below a folder too, seen from the root."""
    for name in names:
        place = root.joinpath(name)
        if place.is_dir():
            inside = sorted(one.name for one in place.iterdir() if not one.name.startswith("__py"))
            yield from _files(root, (f"{name}/{one}" for one in inside))
        elif name.endswith(".py"):
            yield name


def _emptied(folder: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    return folder
