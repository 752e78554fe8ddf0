"""The user's own script on this machine, under its framework."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...catalog.errors import UsageError
from ...planner.plan.plan import Plan
from ..frameworks.launch import launch
from ..frameworks.local import run
from .machine import device_names


def run_script(
    command: str,
    framework: str,
    *,
    plan: Plan | None,
    nproc: int | None,
    device: str | None,
    folder: Path,
    on_note: Callable[[str], None],
) -> int:
    """Run a command under a framework; return its exit code.

    Args:
        command: what the user typed.
        framework: its name.
        plan: what the job was planned as; None leaves everything to the script.
        nproc: processes; None: the plan's accelerators, else the CUDA devices, else 1.
        device: cpu or cuda; None: cuda where there is one.
        folder: for the framework's config files.
        on_note: told what the script must do itself.

    Raises:
        UsageError: the command, the framework or the plan cannot be run so here.
    """
    devices = () if device == "cpu" else device_names()
    if device == "cuda" and not devices:
        raise UsageError(
            "torch sees no CUDA device here.",
            fix="run `gpuplan doctor` to see why, or give --device cpu.",
        )
    planned = None if plan is None else plan.layout.accelerators
    count = nproc or planned or len(devices) or 1
    if devices and count > len(devices):
        raise UsageError(
            f"The script is to run on {count} accelerators; this machine has {len(devices)}.",
            fix=f"give --nproc {len(devices)}, or --device cpu to rehearse on the processor.",
        )
    launched = launch(
        plan, command, framework, nodes=1, per_node=count, device="gpu" if devices else "cpu"
    )
    for note in launched.notes:
        on_note(note)
    return run(launched, folder=folder)
