"""Jobs of the runner, as tests start them: a real folder, real processes, one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpuplan.launcher.bundle import write_job_folder
from gpuplan.launcher.runner.job import CheckpointPolicy, Job, execution_of
from gpuplan.profiles.spec import parse_model_spec

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 180


def plan_of(layout: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return what the runner reads of a plan."""
    return {
        "layout": layout or {},
        "precision": "fp32",
        "micro_batch": 2,
        "grad_accum": 1,
        "recompute": "none",
        "compile": False,
        "stack": "torch-eager",
        **fields,
    }


def make_job(
    out_dir: Path,
    model: Path | str,
    *,
    plan: dict[str, Any] | None,
    params: dict[str, Any] | None = None,
    steps: int = 6,
    checkpoint: CheckpointPolicy | None = None,
    **fields: Any,
) -> Path:
    """Write a job folder inside `out_dir`; return it."""
    job = Job(
        spec=parse_model_spec(str(model), params=params),
        plan=plan,
        execution=None if plan is None else execution_of(plan),
        out_dir=out_dir,
        steps=steps,
        device="cpu",
        checkpoint=checkpoint or CheckpointPolicy(every_s=None),
        timeout_s=60,
        **fields,
    )
    folder = out_dir / "job"
    write_job_folder(folder, job)
    return folder


def command(folder: Path, processes: int) -> list[str]:
    """Return the line that runs a job folder."""
    entry = ["-m", "gpuplan_job", str(folder)]
    python = interpreter(folder.parent)
    if processes == 1:
        return [python, *entry]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [python, *torchrun, *entry]


def interpreter(folder: Path) -> str:
    """Return this Python by a path without spaces.

    torch's compiler for processors does not quote the folder of its headers.
    """
    if " " not in sys.prefix:
        return sys.executable
    link = folder / "environment"
    if not link.exists():
        link.symlink_to(sys.prefix)
    return str(link / Path(sys.executable).relative_to(sys.prefix))


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which the job folder's package is found."""
    return {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


def run(folder: Path, processes: int = 1) -> subprocess.CompletedProcess[str]:
    """Run a job folder to its end."""
    return subprocess.run(
        command(folder, processes),
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def metrics(out_dir: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics."""
    lines = (out_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def losses(out_dir: Path) -> list[float]:
    """Return the loss of every step, the last word on each step counting."""
    by_step = {line["step"]: line["loss"] for line in metrics(out_dir)}
    return [by_step[step] for step in sorted(by_step)]


def train(out_dir: Path, model: Path | str, processes: int, **fields: Any) -> list[float]:
    """Run a job and return its losses; fail with what it said if it failed."""
    done = run(make_job(out_dir, model, **fields), processes)
    assert done.returncode == 0, done.stderr[-3000:]
    return losses(out_dir)
