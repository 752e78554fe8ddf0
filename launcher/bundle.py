"""The job folder: everything that a machine with Python and torch needs to run one plan.

JOB/gpuplan_job/    the runner, and the files that load a model file
JOB/job.json        the model, the steps, where results land
JOB/plan.json       the plan, if there is one
"""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

from .runner.job import Job, write_job

PACKAGE = "gpuplan_job"
CARRIED = (
    "catalog/errors.py",
    "catalog/files.py",
    "catalog/units.py",
    "planner/chunks.py",
    "planner/runnable.py",
    "planner/unsupported.py",
    *(
        f"profiles/{name}.py"
        for name in (
            "blocks",
            "checks",
            "contract",
            "deepview",
            "failures",
            "forms",
            "hugging_face",
            "lightning",
            "measure_step",
            "placing",
            "source",
            "spec",
            "stepping",
            "tensor_plan",
        )
    ),
)
"""What the runner imports from outside its own folder; a test keeps it complete."""
ENTRY = '''"""Runs a job: python -m gpuplan_job JOB-FOLDER, alone or under torchrun."""

import sys

from .launcher.runner.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
'''


def write_job_folder(folder: Path, job: Job) -> None:
    """Write a job and the runner that runs it.

    Args:
        folder: made if it is not there; what it held of an older job is replaced.
        job: what is to be run.
    """
    package = folder / PACKAGE
    if package.exists():
        shutil.rmtree(package)
    root = resources.files(__name__.split(".")[0])
    runner = root / "launcher" / "runner"
    names = [f"launcher/runner/{one.name}" for one in runner.iterdir() if one.name.endswith(".py")]
    for name in (*CARRIED, *names):
        target = package / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((root / name).read_text(encoding="utf-8"), encoding="utf-8")
    for sub in ("", "catalog", "planner", "profiles", "launcher"):
        (package / sub / "__init__.py").write_text("", encoding="utf-8")
    (package / "__main__.py").write_text(ENTRY, encoding="utf-8")
    write_job(folder, job)
